// A step of RK4 for CPUs: particle after particle with real branches, from the field's samples to the walls.
// Each part is the twin of one in Python, to rounding: `fields/structured.py`, `fields/meshes/search.py`,
// `integrators/rk4.py`, `boundaries/box.py`, `boundaries/mesh.py` and `tracking/particles.py` say what they mean.
// Without this: about 5 times slower on gridded data.
// (benchmarks/results/cpu/trace-only-common.json, and trace-only-common-before-kernel.json without.)

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "native.h"

namespace {

using namespace jaxworlds;
using i32 = int32_t;
// Particles that take each sample together, so that the processor reads for one while it waits for another.
constexpr int kBlock = 64;
constexpr int kMoments = 3, kSlices = 4;
// A library of its own: who needs no sphere has the machine code of plain coordinates, and no more to compile.
#ifdef JAXTRACE_SPHERE
constexpr bool kSphere = true;
#else
constexpr bool kSphere = false;
#endif
// Of each sample: its moment.
constexpr int kMomentOf[4] = {0, 1, 1, 2};
enum Walls { kNoWalls, kBox, kMesh };
enum Face { kPeriodic, kReflective, kClamping, kAbsorbing, kOpen };
enum Rule { kStick, kBounce, kSlip, kAbsorb };

// A position or a velocity in one register; three numbers lie in one of four.
template <typename Real, int D>
struct Lanes {
  static constexpr int kWidth = D == 2 ? 2 : 4;
  typedef Real V __attribute__((vector_size(kWidth * sizeof(Real))));
  typedef i32 I __attribute__((vector_size(kWidth * sizeof(i32))));

  static inline V wide(const Real* from) {  // reads as many numbers as a register holds
    V to;
    std::memcpy(&to, from, sizeof(V));
    return to;
  }
  static inline V exact(const Real* from) {
    V to = {};
    for (int k = 0; k < D; ++k) to[k] = from[k];
    return to;
  }
  static inline void store(Real* to, V from) {
    for (int k = 0; k < D; ++k) to[k] = from[k];
  }
};

// --- values at the nodes ---

// The slices that count at the beginning, in the middle and at the end of the step.
template <typename Real, int D>
struct Values {
  using L = Lanes<Real, D>;
  using V = typename L::V;
  const Real* slice[kMoments][kSlices];
  Real weight[kMoments][kSlices];
  int64_t rows, columns;

  // `count` rows, weighted and summed, in each slice and then over the slices.
  template <int S, int N>
  inline V sum(int moment, const int64_t (&row)[N], const Real (&part)[N]) const {
    V total[S] = {};
    int64_t top = row[0];
    for (int k = 1; k < N; ++k) top = std::max(top, row[k]);
    if (columns >= L::kWidth || top + 1 < rows) {
      for (int s = 0; s < S; ++s) {
        const Real* from = slice[moment][s];
        V one = part[0] * L::wide(from + row[0] * columns);
        for (int k = 1; k < N; ++k) one += part[k] * L::wide(from + row[k] * columns);
        total[s] = one;
      }
    } else {  // nothing may be read behind the last row
      for (int s = 0; s < S; ++s) {
        const Real* from = slice[moment][s];
        V one = part[0] * L::exact(from + row[0] * columns);
        for (int k = 1; k < N; ++k) one += part[k] * L::exact(from + row[k] * columns);
        total[s] = one;
      }
    }
    V all = weight[moment][0] * total[0];
    for (int s = 1; s < S; ++s) all += weight[moment][s] * total[s];
    return all;
  }
};

// --- uniform grids ---

// Along the axis whose nodes follow one another in memory, both ends of a cell's edge are one read of `2 * columns` numbers
// (and some behind them, which count nothing).
template <typename Real, int D>
struct Grid {
  using L = Lanes<Real, D>;
  using V = typename L::V;
  using I = typename L::I;
  static constexpr int kEdges = 1 << (D - 1), kWide = D == 2 ? 4 : 8;
  typedef Real Edge __attribute__((vector_size(kWide * sizeof(Real))));
  V origin, spacing, lowest, highest, top;
  I last;
  int axis[D];                       // from the slowest in memory to the fastest
  int64_t stride[D], offset[kEdges];  // in numbers
  int64_t end;                       // an edge that begins before it can be read in one
  Values<Real, D> values;

  template <int S>
  __attribute__((always_inline)) inline bool sample(int moment, V x, i32&, V& velocity) const {
    V at = (x - origin) / spacing;
    const auto within = (at >= lowest) & (at <= highest);
    at = at < V{} ? V{} : at;
    at = at > top ? top : at;
    I cell = __builtin_convertvector(at, I);
    cell = cell < I{} ? I{} : cell;  // NaN becomes the lowest number
    cell = cell > last ? last : cell;
    const V share = at - __builtin_convertvector(cell, V), rest = 1 - share;
    Real part[kEdges];
    const Real a = share[axis[0]], b = rest[axis[0]];
    int64_t first = cell[axis[0]] * stride[0] + cell[axis[1]] * stride[1];
    if constexpr (D == 2) {
      part[0] = b, part[1] = a;
    } else {
      const Real c = share[axis[1]], d = rest[axis[1]];
      part[0] = b * d, part[1] = b * c, part[2] = a * d, part[3] = a * c;
      first += cell[axis[2]] * stride[2];
    }
    const Real high = share[axis[D - 1]], low = rest[axis[D - 1]];
    if (__builtin_expect(first + offset[kEdges - 1] < end, 1)) {
      Edge total = {};
      for (int s = 0; s < S; ++s) {
        const Real* from = values.slice[moment][s] + first;
        Edge sum = part[0] * wide(from + offset[0]);
        for (int k = 1; k < kEdges; ++k) sum += part[k] * wide(from + offset[k]);
        total = s ? total + values.weight[moment][s] * sum : values.weight[moment][0] * sum;
      }
      velocity = ends(total, low, high);
    } else {
      velocity = V{};
      for (int s = 0; s < S; ++s) {
        V sum = {};
        for (int k = 0; k < kEdges; ++k) {
          const Real* from = values.slice[moment][s] + first + offset[k];
          sum += (part[k] * low) * L::exact(from) + (part[k] * high) * L::exact(from + values.columns);
        }
        velocity += values.weight[moment][s] * sum;
      }
    }
    bool inside = true;
    for (int k = 0; k < D; ++k) inside &= within[k] != 0;
    return inside;
  }

  static inline Edge wide(const Real* from) {
    Edge to;
    std::memcpy(&to, from, sizeof(to));
    return to;
  }

  inline V ends(Edge total, Real low, Real high) const {
    alignas(Edge) Real flat[kWide];
    std::memcpy(flat, &total, sizeof(flat));
    return low * L::wide(flat) + high * L::wide(flat + values.columns);
  }
};

// --- meshes of triangles or tetrahedra ---

template <typename Real>
struct BitsOf {
  using Type = i32;
};
template <>
struct BitsOf<double> {
  using Type = int64_t;
};

template <typename Real, int D>
struct Simplex {
  const Real* inverse;  // by rows
  const Real* corner;
  const typename BitsOf<Real>::Type* link;

  inline void weights(const Real* x, Real (&weight)[D + 1]) const {
    Real offset[D], sum = 0;
    for (int k = 0; k < D; ++k) offset[k] = x[k] - corner[k];
    for (int i = 0; i < D; ++i) {
      Real one = inverse[D * i] * offset[0];
      for (int k = 1; k < D; ++k) one += inverse[D * i + k] * offset[k];
      weight[i + 1] = one;
      sum = i ? sum + one : one;
    }
    weight[0] = 1 - sum;
  }

  // What rounding may change in the weights.
  inline Real tolerance() const {
    Real sum = 0;
    for (int k = 0; k < D; ++k) {
      Real steep = 0;
      for (int i = 0; i < D; ++i) steep += std::abs(inverse[D * i + k]);
      sum += steep * std::abs(corner[k]);
    }
    return 2 * std::numeric_limits<Real>::epsilon() * (2 + sum);
  }

  // The lowest of the weights whose face has a link, and that link.
  inline Real exit(const Real (&weight)[D + 1], i32 here, i32& onward) const {
    Real behind = std::numeric_limits<Real>::infinity();
    onward = here;
    for (int k = 0; k <= D; ++k)
      if (link[k] >= 0 && weight[k] < behind) behind = weight[k], onward = i32(link[k]);
    return behind;
  }
};

template <typename Real, int N>
inline Real lowest_of(const Real (&weight)[N]) {
  Real found = weight[0];
  for (int k = 1; k < N; ++k) found = weight[k] < found ? weight[k] : found;
  return found;
}

template <typename Real, int D>
struct Search {
  const void* rows;
  const Real *clear, *box, *origin, *scale;  // box: lowest, then highest corner
  const i32 *first, *members;
  const i32* bins;
  int64_t simplices, width;
  Real slack;
  i32 max_walk;

  inline Simplex<Real, D> at(i32 simplex) const {
    const Real* row = static_cast<const Real*>(rows) + simplex * width;
    return {row, row + D * D, reinterpret_cast<const typename BitsOf<Real>::Type*>(row + D * D + D)};
  }

  inline i32 begin(i32 hint) const { return std::clamp<i32>(hint, 0, i32(simplices - 1)); }

  // From the simplex `here` to the one around the point: true; or to the last one on the way: false.
  inline bool find(const Real* x, i32& here, Real (&weight)[D + 1]) const {
    for (i32 steps = 0;; ++steps) {
      const Simplex<Real, D> one = at(here);
      one.weights(x, weight);
      const Real least = lowest_of(weight);
      if (least >= 0) return true;
      const Real tolerance = one.tolerance();
      i32 onward;
      if (one.exit(weight, here, onward) < -tolerance) {
        if (steps >= max_walk) break;
        here = onward;
        continue;
      }
      if (least >= -tolerance) return true;
      break;
    }
    return look_up(x, here, weight);
  }

  // The member of the bin that holds the point; where the space behind the last simplex's walls is clear, none does.
  __attribute__((noinline)) bool look_up(const Real* x, i32& here, Real (&weight)[D + 1]) const {
    for (int k = 0; k < D; ++k)
      if (!(x[k] >= box[k] - slack && x[k] <= box[D + k] + slack)) return false;
    const Simplex<Real, D> last = at(here);
    i32 onward;
    if (last.exit(weight, here, onward) >= -last.tolerance() && lowest_of(weight) >= -clear[here]) return false;
    int64_t number = 0;
    for (int k = 0; k < D; ++k) {
      const Real place = (x[k] - origin[k]) * scale[k];
      number = number * bins[k] + i32(std::clamp<Real>(place, 0, Real(bins[k] - 1)));
    }
    for (i32 slot = first[number]; slot < first[number + 1]; ++slot) {
      const Simplex<Real, D> one = at(members[slot]);
      Real found[D + 1];
      one.weights(x, found);
      if (lowest_of(found) >= -one.tolerance()) {
        std::memcpy(weight, found, sizeof(found));
        here = members[slot];
        return true;
      }
    }
    return false;
  }
};

template <typename Real, int D>
struct Mesh {
  using L = Lanes<Real, D>;
  using V = typename L::V;
  Search<Real, D> search;
  const i32* nodes;
  Values<Real, D> values;

  template <int S>
  __attribute__((always_inline)) inline bool sample(int moment, V x, i32& hint, V& velocity) const {
    Real point[D], weight[D + 1];
    L::store(point, x);
    hint = search.begin(hint);
    const bool inside = search.find(point, hint, weight);
    if (!inside) {  // the weights of a near point
      Real sum = 0;
      for (Real& one : weight) one = one < 0 ? 0 : one > 1 ? 1 : one, sum += one;
      for (Real& one : weight) one /= sum < Real(1e-6) ? Real(1e-6) : sum;
    }
    int64_t row[D + 1];
    for (int k = 0; k <= D; ++k) row[k] = nodes[int64_t(hint) * (D + 1) + k];
    velocity = values.template sum<S>(moment, row, weight);
    return inside;
  }
};

// --- longitudes and latitudes ---

// A block's steps on a sphere: slopes are in metres in the chart around where each begins, the twin of `fields/sphere.py`
// and `fields/chart.py`. Short steps away from the poles take the same formulas as series, several particles in a register.
template <typename Real>
struct Charts {
  Real radius, equator, middle;
  Real cosine[kBlock], sine[kBlock];                         // of the latitudes where the steps begin
  Real east[kBlock], north[kBlock];                          // metres, of places in the charts
  Real longitude[kBlock], latitude[kBlock];                  // degrees from where the steps begin
  Real along[kBlock], across[kBlock];                        // what one m/s to the east is in the chart

  static constexpr Real kDegree = Real(3.14159265358979323846 / 180);
  static constexpr bool kSeries = sizeof(Real) == 4;

  void begin(int count) {  // from latitudes
    for (int k = 0; k < count; ++k) {
      const Real at = latitude[k] + equator, away = (90 - std::abs(at)) * kDegree;
      if constexpr (kSeries) {
        const Real s = away * away;
        const Real odd = away * (1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110 * (1 - s / 156))))));
        const Real even = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56 * (1 - s / 90 * (1 - s / 132 * (1 - s / 182))))));
        cosine[k] = odd, sine[k] = std::copysign(even, at);
      } else {
        cosine[k] = std::sin(away), sine[k] = std::copysign(std::cos(away), at);
      }
    }
  }

  void place(int count) {
    int rare = kSeries ? 0 : count;
    if constexpr (kSeries) {
      const Real half = Real(0.5) / radius, degrees = 1 / kDegree;
      for (int k = 0; k < count; ++k) {
        const Real a = east[k] * half, b = north[k] * half, square = a * a + b * b;
        const Real near = cosine[k] * (1 - square) - 2 * b * sine[k], inverse = 1 / near;
        const Real t = 2 * a * inverse, s = t * t;
        const Real gap = near * s * (Real(1) / 2 - s * (Real(1) / 8 - s * (Real(1) / 16 - s * (Real(5) / 128))));
        const Real north_of = (2 * b - sine[k] * gap) / (1 - square + cosine[k] * gap), r = north_of * north_of;
        const Real stretch =
            (1 + square) * inverse * (1 - s * (Real(1) / 2 - s * (Real(3) / 8 - s * (Real(5) / 16 - s * (Real(35) / 128)))));
        longitude[k] = degrees * t * (1 - s * (Real(1) / 3 - s * (Real(1) / 5 - s * (Real(1) / 7))));
        latitude[k] = degrees * north_of * (1 - r * (Real(1) / 3 - r * (Real(1) / 5 - r * (Real(1) / 7))));
        along[k] = stretch * (near + 2 * cosine[k] * a * a), across[k] = stretch * 2 * a * (sine[k] + cosine[k] * b);
        rare += !((near > 0) & (s < Real(0.0036)) & (r < Real(0.0036)));
      }
    }
    if (__builtin_expect(rare, 0))
      for (int k = 0; k < count; ++k) place_one(k);
  }

  __attribute__((noinline)) void place_one(int k) {
    const Real half = Real(0.5) / radius, a = east[k] * half, b = north[k] * half, square = a * a + b * b;
    const Real near = cosine[k] * (1 - square) - 2 * b * sine[k], far = 2 * a, distance = std::sqrt(near * near + far * far);
    if (distance == 0) {  // at a pole
      longitude[k] = 0, latitude[k] = std::atan2(2 * b, 1 - square) / kDegree, along[k] = 1 + square, across[k] = 0;
      return;
    }
    const Real gap = near > 0 ? far * far / (distance + near) : distance - near, stretch = (1 + square) / distance;
    longitude[k] = std::atan2(far, near) / kDegree;
    latitude[k] = std::atan2(2 * b - sine[k] * gap, 1 - square + cosine[k] * gap) / kDegree;
    along[k] = stretch * (near + 2 * cosine[k] * a * a), across[k] = stretch * far * (sine[k] + cosine[k] * b);
  }
};

// A longitude on the turn around `middle`.
template <typename Real>
inline Real on_turn(Real at, Real middle) {
  return at - 360 * std::floor((at - middle) / 360 + Real(0.5));
}

// --- walls ---

// What walls make of a step: where it ends, and the patch that ends the particle or -1.
// Where it ended them, also the share of the straight way until there, and a direction across the wall (zeros for none).
template <typename Real, int D>
struct Bounced {
  Real position[D];
  i32 patch;
  Real share, normal[D];
};

// The part of the step's time before the wall: `share_of_time` in `motion.py`. `first` is velocity times step.
template <typename Real, int D>
Real share_of_time(const Bounced<Real, D>& to, const Real* old, const Real* now, const Real* first) {
  Real across = 0, bend = 0;
  for (int k = 0; k < D; ++k) {
    const Real way = now[k] - old[k];
    across += to.normal[k] * way, bend += to.normal[k] * (first[k] - way);
  }
  const Real q = bend / (across == 0 ? 1 : across), chord = to.share;
  const Real square = (1 + q) * (1 + q) - 4 * q * chord;
  const Real sum = 1 + q + std::sqrt(square > 0 ? square : Real(0)), share = 2 * chord / (sum > 0 ? sum : 1);
  return across != 0 && share >= 0 && share <= 1 ? share : chord;
}

template <typename Real>
inline i32 whole(Real x) {
  return x >= Real(2147483520) ? 2147483647 : x > Real(-2147483520) ? i32(x) : x == x ? -2147483647 : 0;
}

template <typename Real, int D>
struct BoxWalls {
  const Real *low, *high;
  const i32* face;  // for each axis the lower and the upper one

  // Whether the step ends inside: then it is as it is.
  inline bool clear(const Real* x) const {
    bool inside = true;
    for (int k = 0; k < D; ++k) inside &= (x[k] >= low[k]) & (x[k] < high[k]);
    return inside;
  }

  // The share of the way after which an absorbing face is passed; infinite where it is not.
  inline Real share(int k, int side, const Real* old, const Real* now) const {
    const Real near = side ? high[k] : low[k], far = side ? low[k] : high[k];
    const Real way = now[k] - old[k];
    Real found = std::numeric_limits<Real>::infinity();
    for (int image = 0; image < (face[2 * k + 1 - side] == kReflective ? 2 : 1); ++image) {
      // Beyond a mirror on the other side the face appears at its image, to be passed the other way.
      const Real plane = image ? 2 * far - near : near;
      if ((side == 1) != (image == 1) ? now[k] > plane : now[k] < plane)
        found = way == 0 ? 0 : std::clamp<Real>((plane - old[k]) / way, 0, 1);
    }
    return found;
  }

  void bounce(const Real* old, const Real* now, Bounced<Real, D>& to, i32* hits) const {
    Real cut = std::numeric_limits<Real>::infinity();
    to.patch = -1;
    for (int k = 0; k < D; ++k)
      for (int side = 0; side < 2; ++side)
        if (face[2 * k + side] == kAbsorbing) {
          const Real part = share(k, side, old, now);
          if (part <= 1 && part < cut) to.patch = 2 * k + side;
          cut = std::min(cut, part);
        }
    for (int k = 0; k < D; ++k) {
      Real x = now[k];
      if (to.patch >= 0)
        x = to.patch / 2 == k ? (to.patch % 2 ? high[k] : low[k]) : old[k] + cut * (now[k] - old[k]);
      to.position[k] = x == x ? fold(k, x, hits) : x;
    }
    if (to.patch >= 0) {
      ++hits[to.patch], to.share = cut;
      for (int k = 0; k < D; ++k) to.normal[k] = k == to.patch / 2;
    }
  }

  inline Real fold(int k, Real x, i32* hits) const {
    const Real bottom = low[k], top = high[k], size = top > bottom ? top - bottom : 1;
    i32 &below = hits[2 * k], &above = hits[2 * k + 1];
    const i32 kind = face[2 * k];
    if (kind != face[2 * k + 1]) return fold_mixed(k, x, hits);
    if (kind == kPeriodic) {
      if (x >= bottom && x < top) return x;
      const Real turns = top <= bottom ? 0 : std::floor((x - bottom) / size);
      Real wrapped = std::max(x - turns * size, bottom);
      const bool over = wrapped >= top && top > bottom;
      if (over || top <= bottom) wrapped = bottom;
      const i32 count = whole(turns) + over;
      below += std::max(-count, 0), above += std::max(count, 0);
      return wrapped;
    }
    if (kind == kReflective) {
      if (x >= bottom && x <= top) return x;
      const Real turns = top <= bottom ? 0 : std::floor((x - bottom) / size);
      const i32 number = whole(turns);
      const Real along = x - turns * size;
      const i32 count = std::abs(number), near = (count + 1) >> 1, far = count >> 1;
      below += number > 0 ? far : near, above += number > 0 ? near : far;
      return std::min(std::max(number & 1 ? bottom + top - along : along, bottom), top);
    }
    if (kind != kAbsorbing) below += x < bottom, above += x > top;
    return kind == kOpen ? x : std::min(std::max(x, bottom), top);
  }

  // Two different faces: a mirror first, then whatever the other face does.
  inline Real fold_mixed(int k, Real x, i32* hits) const {
    for (int side = 0; side < 2; ++side)
      if (face[2 * k + side] == kReflective && (side ? x > high[k] : x < low[k]))
        x = 2 * (side ? high[k] : low[k]) - x, ++hits[2 * k + side];
    for (int side = 0; side < 2; ++side) {
      const i32 kind = face[2 * k + side];
      const bool past = side ? x > high[k] : x < low[k];
      if (past && (kind == kClamping || kind == kOpen)) ++hits[2 * k + side];
      if (past && (kind == kClamping || kind == kAbsorbing)) x = side ? high[k] : low[k];
    }
    return x;
  }
};

template <typename Real, int D>
struct MeshWalls {
  Search<Real, D> search;
  const Real* balls;  // middle and radius of a ball around each simplex that no wall enters
  const i32* rule;    // of each patch
  i32 crossings;
  Real middle;  // on a sphere the longitude around which the mesh lies; NaN for none

  struct Passed {
    Real share, height, fall, slope[D], tolerance;
    int64_t link;
  };

  inline bool clear(const Real* old, const Real* now, i32 hint) const {
    const Real* ball = balls + int64_t(search.begin(hint)) * (D + 1);
    Real before = 0, after = 0;
    for (int k = 0; k < D; ++k) {
      before += (old[k] - ball[k]) * (old[k] - ball[k]);
      after += (now[k] - ball[k]) * (now[k] - ball[k]);
    }
    const Real radius = std::max<Real>(ball[D], 0);
    return before < radius * radius && after < radius * radius;
  }

  // The face of a simplex that the path passes first; share 2 where it passes none.
  inline Passed passed(i32 simplex, const Real* here, const Real* end) const {
    const Simplex<Real, D> one = search.at(simplex);
    Real height[D + 1];
    one.weights(here, height);
    Passed found;
    const Real tolerance = one.tolerance();
    for (int i = 0; i <= D; ++i) {
      Real slope[D], fall = 0;
      for (int k = 0; k < D; ++k) {
        if (i) {
          slope[k] = one.inverse[D * (i - 1) + k];
        } else {
          Real sum = one.inverse[k];
          for (int j = 1; j < D; ++j) sum += one.inverse[D * j + k];
          slope[k] = -sum;
        }
        fall -= slope[k] * (end[k] - here[k]);
      }
      const bool leaves = height[i] - fall < -tolerance;
      const Real share = leaves ? std::clamp<Real>(height[i] / fall, 0, 1) : 2;
      if (i == 0 || share < found.share) {
        found.share = share, found.height = height[i], found.fall = fall, found.link = one.link[i];
        std::memcpy(found.slope, slope, sizeof(slope));
      }
    }
    found.tolerance = tolerance;
    return found;
  }

  // From cell to cell along the path: true at a wall, false at its end.
  inline bool walk(i32& simplex, const Real* here, const Real* end, i32& crossed, Passed& face) const {
    for (;; ++crossed) {
      face = passed(simplex, here, end);
      const bool goes = face.share <= 1 && crossed < crossings;
      const bool strikes = (goes && face.link < 0) || crossed >= crossings;
      if (strikes || !goes) return ++crossed, strikes;
      simplex = i32(face.link);
    }
  }

  void bounce(const Real* old, const Real* now, i32 hint, Bounced<Real, D>& to, i32* hits) const {
    Real here[D], end[D], weight[D + 1];
    std::memcpy(here, old, sizeof(here)), std::memcpy(end, now, sizeof(end));
    std::memcpy(to.position, now, sizeof(end));
    to.patch = -1, to.share = 0;
    i32 simplex = search.begin(hint), crossed = 0;
    if (!search.find(old, simplex, weight)) return;  // who begins outside meets no wall on the way
    Passed face;
    bool ahead = walk(simplex, here, end, crossed, face);
    for (i32 turn = 0; ahead && crossed < crossings && turn < crossings; ++turn) {
      if (!(face.share <= 1 && face.link < 0)) break;
      to.share += face.share * (1 - to.share);
      // Behind a first wall the way bends: what is known of the path's curve holds no longer.
      for (int k = 0; k < D; ++k) to.normal[k] = turn == 0 ? face.slope[k] : Real(0);
      strike(face, here, end, to.patch, ahead, hits);
      if (ahead) ahead = walk(simplex, here, end, crossed, face);
    }
    std::memcpy(to.position, ahead ? old : end, sizeof(end));
  }

  // What the wall makes of the path: it goes on from the wall, or ends there.
  void strike(const Passed& face, Real* here, Real* end, i32& ended, bool& ahead, i32* hits) const {
    Real steep = 0, beyond = 0, wall[D];
    for (int k = 0; k < D; ++k) steep += face.slope[k] * face.slope[k];
    steep = std::max(steep, std::numeric_limits<Real>::min());
    // A trace inside, so that rounding does not put the particle behind the wall.
    const Real short_of = std::max<Real>(2 * face.tolerance - (face.height - face.share * face.fall), 0);
    for (int k = 0; k < D; ++k)
      wall[k] = (here[k] + face.share * (end[k] - here[k])) + (short_of / steep) * face.slope[k];
    for (int k = 0; k < D; ++k) beyond += face.slope[k] * (end[k] - wall[k]);
    const i32 patch = i32(-1 - face.link), how = rule[patch];
    ++hits[patch];
    for (int k = 0; k < D; ++k) {
      const Real across = (beyond / steep) * face.slope[k];
      if (how == kBounce) end[k] -= 2 * across;
      if (how == kSlip) end[k] = end[k] - across + (2 * face.tolerance / steep) * face.slope[k];
      if (how == kStick || how == kAbsorb) end[k] = wall[k];
      here[k] = wall[k];
    }
    if (how == kAbsorb) ended = patch;
    ahead = how == kBounce || how == kSlip;
  }
};

// --- the step ---

template <typename Real, int D, typename Sampler>
struct Step {
  Sampler sampler;
  BoxWalls<Real, D> box;
  MeshWalls<Real, D> mesh;
  Walls walls;
  Real *position, *rest, *share;
  i32 *ended, *cause, *hint, *hits;
  const i32* begun;
  int64_t particles, patches;
  Real dt;
  i32 row, outside, not_finite;
  bool known, stops;
  const Real* globe;  // radius, latitude of the second coordinate's zero, longitude of the field's middle
};

constexpr int kMostPatches = 64;

template <typename Real, int D>
inline bool finite(const Real (&x)[D]) {
  bool all = true;
  for (int k = 0; k < D; ++k) all &= x[k] - x[k] == 0;
  return all;
}

// What walls make of the step of particle `i` from its place to `now`. A step is rarely here: kept out of its loop.
// A mesh of walls may see both places on another turn, `here` and `there`.
template <typename Real, int D, typename Sampler, int S, typename V = typename Lanes<Real, D>::V>
__attribute__((noinline, cold)) void meet_wall(const Step<Real, D, Sampler>& job, int64_t i, const V& x, const V& low, Real cosine,
                                               const Real* here, const Real* now, const Real* there, Bounced<Real, D>& to, i32* hits) {
  const Real* place = job.position + i * D;
  if (job.walls == kBox) job.box.bounce(place, now, to, hits);
  else job.mesh.bounce(here, there, job.hint[i], to, hits);
  if constexpr (kSphere)
    if (job.walls == kMesh)  // what no wall changed is not rounded
      to.position[0] = to.position[0] == there[0] ? now[0] : to.position[0] - (here[0] - place[0]);
  if (to.patch < 0) return;
  job.ended[i] = job.row + 1, job.cause[i] = to.patch;
  i32 from = job.hint ? job.hint[i] : 0;
  V velocity, begin = x + low;
  Real first[D];
  if constexpr (kSphere) begin = x, begin[0] = on_turn(begin[0], job.globe[2]);  // `low` is in metres
  job.sampler.template sample<S>(0, begin, from, velocity);
  if constexpr (kSphere) {  // the way is in degrees
    const Real metres = job.globe[0] * Charts<Real>::kDegree;
    velocity[0] /= metres * std::max(cosine, 1 / job.globe[0]), velocity[1] /= metres;
  }
  Lanes<Real, D>::store(first, job.dt * velocity);
  job.share[i] = share_of_time<Real, D>(to, place, now, first);
}

template <typename Real, int D, typename Sampler, int S>
void step_block(const Step<Real, D, Sampler>& job, int64_t block) {
  using L = Lanes<Real, D>;
  using V = typename L::V;
  int64_t who[kBlock];
  V x[kBlock], low[kBlock], slope[kBlock], total[kBlock];
  i32 hint[kBlock];
  i32 hits[kMostPatches] = {};
  int count = 0;
  const int64_t end = std::min(job.particles, (block + 1) * kBlock);
  for (int64_t i = block * kBlock; i < end; ++i) {
    who[count] = i;
    count += job.begun[i] <= job.row && job.row < job.ended[i];
  }
  for (int k = 0; k < count; ++k) {
    x[k] = L::exact(job.position + who[k] * D), low[k] = L::exact(job.rest + who[k] * D);
    hint[k] = job.hint ? job.hint[who[k]] : 0;
  }
  Charts<Real> charts;
  if constexpr (kSphere) {
    charts.radius = job.globe[0], charts.equator = job.globe[1], charts.middle = job.globe[2];
    for (int k = 0; k < count; ++k) charts.latitude[k] = x[k][1];
    charts.begin(count);
    const Real metres = charts.radius * Charts<Real>::kDegree;
    for (int k = 0; k < count; ++k) low[k][0] *= metres * charts.cosine[k], low[k][1] *= metres;
  }
  // On a sphere what is added to the positions is in metres, in the charts around them.
  const auto lay = [&](int count, Real ahead) {
    for (int k = 0; k < count; ++k) {
      const V way = ahead == 0 ? low[k] : low[k] + ahead * slope[k];
      charts.east[k] = way[0], charts.north[k] = way[1];
    }
    charts.place(count);
  };
  const auto sample = [&](int k, int moment, V way, i32& hint, V& found) __attribute__((always_inline)) {
    if constexpr (!kSphere) return job.sampler.template sample<S>(moment, x[k] + way, hint, found);
    way[0] = charts.longitude[k], way[1] = charts.latitude[k];
    V at = x[k] + way;
    at[0] = on_turn(at[0], charts.middle);
    const bool inside = job.sampler.template sample<S>(moment, at, hint, found);
    const Real u = found[0], v = found[1];
    found[0] = charts.along[k] * u - charts.across[k] * v, found[1] = charts.across[k] * u + charts.along[k] * v;
    return inside;
  };
  if constexpr (kSphere) lay(count, 0);
  int held = 0;
  for (int k = 0; k < count; ++k) {
    V found;
    const bool inside = sample(k, 0, low[k], hint[k], found) && job.known;
    if (job.stops && !inside) {
      job.ended[who[k]] = job.row, job.cause[who[k]] = job.outside;
      continue;
    }
    who[held] = who[k], x[held] = x[k], low[held] = low[k], hint[held] = hint[k];
    if constexpr (kSphere) charts.cosine[held] = charts.cosine[k], charts.sine[held] = charts.sine[k];
    slope[held] = total[held] = found;
    ++held;
  }
  const Real dt = job.dt, half = Real(0.5) * dt;
  if constexpr (kSphere) lay(held, half);
  for (int k = 0; k < held; ++k) {
    V found;
    sample(k, 1, low[k] + half * slope[k], hint[k], found);
    slope[k] = found;
  }
  if constexpr (kSphere) lay(held, half);
  for (int k = 0; k < held; ++k) {
    V found;
    sample(k, 1, low[k] + half * slope[k], hint[k], found);
    total[k] += 2 * (slope[k] + found);
    slope[k] = found;
  }
  if constexpr (kSphere) lay(held, dt);
  for (int k = 0; k < held; ++k) {
    V found;
    sample(k, 2, low[k] + dt * slope[k], hint[k], found);
    total[k] += found;
  }
  const Real sixth = dt / 6;
  if constexpr (kSphere) {
    for (int k = 0; k < held; ++k) slope[k] = total[k];
    lay(held, sixth);
  }
  for (int k = 0; k < held; ++k) {
    const int64_t i = who[k];
    V way = low[k] + sixth * total[k];
    if constexpr (kSphere) way[0] = charts.longitude[k], way[1] = charts.latitude[k];
    const V moved = x[k] + way;
    V left = way - (moved - x[k]);
    Real now[D], *place = job.position + i * D;
    L::store(now, moved);
    if (__builtin_expect(!finite(now), 0)) {
      job.ended[i] = job.row, job.cause[i] = job.not_finite;
      continue;
    }
    // The mesh of the walls may have its longitudes on another turn.
    const Real *here = place, *there = now;
    Real turned[2][D];
    if constexpr (kSphere)
      if (job.walls == kMesh && job.mesh.middle == job.mesh.middle) {
        std::memcpy(turned[0], place, sizeof(turned[0])), std::memcpy(turned[1], now, sizeof(turned[1]));
        turned[0][0] -= 360 * std::floor((place[0] - job.mesh.middle) / 360 + Real(0.5));
        turned[1][0] += turned[0][0] - place[0];
        here = turned[0], there = turned[1];
      }
    const bool clear = job.walls == kNoWalls || (job.walls == kBox ? job.box.clear(now) : job.mesh.clear(here, there, job.hint[i]));
    if (!clear) {
      Bounced<Real, D> to;
      meet_wall<Real, D, Sampler, S>(job, i, x[k], low[k], kSphere ? charts.cosine[k] : 0, here, now, there, to, hits);
      // What is lost by rounding belongs to the place; a wall that moved the particle begins anew.
      for (int axis = 0; axis < D; ++axis)
        if (to.position[axis] != now[axis]) left[axis] = 0, now[axis] = to.position[axis];
    }
    for (int axis = 0; axis < D; ++axis) place[axis] = now[axis];
    L::store(job.rest + i * D, left);
    if (job.hint) job.hint[i] = hint[k];
  }
  if (job.walls != kNoWalls)
    for (int64_t k = 0; k < job.patches; ++k)
      if (hits[k]) __atomic_fetch_add(job.hits + k, hits[k], __ATOMIC_RELAXED);
}

// --- what XLA hands over ---

// The numbers that a program fixes: see `_Call` in `cpu.py`.
struct Plan {
  const i32* at;
  i32 next() { return *at++; }
  const i32* some(int count) {
    const i32* found = at;
    at += count;
    return found;
  }
};

template <typename Real, int D>
Search<Real, D> search_from(Buffers& in, Plan& plan) {
  Search<Real, D> search;
  XLA_FFI_Buffer* rows = in.buffer();
  search.rows = rows->data, search.simplices = rows->dims[0], search.width = rows->dims[1];
  search.clear = in.next<Real>();
  search.box = in.next<Real>(), search.origin = search.box + 2 * D, search.scale = search.box + 3 * D;
  search.first = in.next<i32>(), search.members = in.next<i32>();
  search.max_walk = plan.next(), search.bins = plan.some(D);
  Real largest = 0;
  for (int k = 0; k < 2 * D; ++k) largest = std::max(largest, std::abs(search.box[k]));
  search.slack = 8 * std::numeric_limits<Real>::epsilon() * largest;
  return search;
}

template <typename Real, int D>
Values<Real, D> values_from(Buffers& in, const i32* slices, const Real* weights) {
  Values<Real, D> values;
  for (int m = 0; m < kMoments; ++m) {
    XLA_FFI_Buffer* buffer = in.buffer();
    values.columns = buffer->dims[buffer->rank - 1], values.rows = buffer->dims[buffer->rank - 2];
    for (int s = 0; s < kSlices; ++s) {
      values.slice[m][s] =
          static_cast<const Real*>(buffer->data) + slices[m * kSlices + s] * values.rows * values.columns;
      values.weight[m][s] = weights[m * kSlices + s];
    }
  }
  return values;
}

template <typename Real, int D>
void sampler_from(Grid<Real, D>& grid, Buffers& in, Plan& plan) {
  using L = Lanes<Real, D>;
  const Real* numbers = in.next<Real>();
  const i32 *shape = plan.some(D), *order = plan.some(D);
  grid.origin = L::exact(numbers), grid.spacing = L::exact(numbers + D);
  grid.lowest = grid.highest = grid.top = typename L::V{};
  grid.last = typename L::I{};
  for (int k = D; k < L::kWidth; ++k) grid.spacing[k] = 1;
  int64_t stride = grid.values.columns;
  for (int place = D - 1; place >= 0; --place) {
    const int k = order[place];
    const Real slack = 4 * std::numeric_limits<Real>::epsilon() * (shape[k] + std::abs(grid.origin[k] / grid.spacing[k]));
    grid.lowest[k] = -slack, grid.highest[k] = shape[k] - 1 + slack, grid.top[k] = shape[k] - 1;
    grid.last[k] = shape[k] - 2, grid.axis[place] = k, grid.stride[place] = stride;
    stride *= shape[k];
  }
  for (int edge = 0; edge < Grid<Real, D>::kEdges; ++edge) {
    grid.offset[edge] = 0;
    for (int place = 0; place < D - 1; ++place)
      if (edge >> (D - 2 - place) & 1) grid.offset[edge] += grid.stride[place];
  }
  grid.end = grid.values.rows * grid.values.columns - Grid<Real, D>::kWide + 1;
}

template <typename Real, int D>
void sampler_from(Mesh<Real, D>& mesh, Buffers& in, Plan& plan) {
  mesh.search = search_from<Real, D>(in, plan);
  mesh.nodes = in.next<i32>();
}

template <typename Real, int D, typename Sampler>
void take_step(XLA_FFI_CallFrame* frame, Plan plan) {
  Buffers in{frame->args.args}, out{frame->rets.rets};
  Step<Real, D, Sampler> job;
  job.position = in.next<Real>(), job.rest = in.next<Real>();
  job.ended = in.next<i32>(), job.cause = in.next<i32>(), job.share = in.next<Real>();
  XLA_FFI_Buffer* hint = in.buffer();
  job.hint = hint->dims[0] ? static_cast<i32*>(hint->data) : nullptr;
  XLA_FFI_Buffer* begun = in.buffer();
  job.begun = static_cast<const i32*>(begun->data), job.particles = begun->dims[0];
  const Real* numbers = in.next<Real>();
  const i32* integers = in.next<i32>();
  in.buffer();  // the plan
  for (int k = 0; k < 6; ++k) out.buffer();  // these lie where the inputs lie
  XLA_FFI_Buffer* hits = out.buffer();
  job.hits = static_cast<i32*>(hits->data), job.patches = hits->dims[0];
  std::memset(job.hits, 0, job.patches * sizeof(i32));
  job.dt = numbers[0], job.row = integers[0], job.known = integers[1] != 0;
  const int slices = plan.next();
  job.stops = plan.next() != 0, job.outside = plan.next(), job.not_finite = plan.next(), job.walls = Walls(plan.next());
  job.sampler.values = values_from<Real, D>(in, integers + 2, numbers + 1);
  if constexpr (kSphere) job.globe = in.next<Real>();
  sampler_from(job.sampler, in, plan);
  if (job.walls == kBox) {
    job.box.low = in.next<Real>(), job.box.high = job.box.low + D, job.box.face = plan.some(2 * D);
  } else if (job.walls == kMesh) {
    job.mesh.search = search_from<Real, D>(in, plan);
    job.mesh.balls = in.next<Real>();
    if constexpr (kSphere) job.mesh.middle = *in.next<Real>();
    job.mesh.crossings = plan.next(), job.mesh.rule = plan.some(int(job.patches));
  }
  void (*each)(const Step<Real, D, Sampler>&, int64_t) =
      slices == 1 ? step_block<Real, D, Sampler, 1>
                  : slices == 2 ? step_block<Real, D, Sampler, 2> : step_block<Real, D, Sampler, 4>;
  for_all(frame, job, each, (job.particles + kBlock - 1) / kBlock, 8);
}

template <typename Real>
void choose(XLA_FFI_CallFrame* frame, Plan plan, int dim, bool mesh) {
  if (dim == 2 && !mesh) take_step<Real, 2, Grid<Real, 2>>(frame, plan);
  if (dim == 2 && mesh) take_step<Real, 2, Mesh<Real, 2>>(frame, plan);
  if (dim == 3 && !mesh) take_step<Real, 3, Grid<Real, 3>>(frame, plan);
  if (dim == 3 && mesh) take_step<Real, 3, Mesh<Real, 3>>(frame, plan);
}

}  // namespace

extern "C" XLA_FFI_Error* jaxtrace_step(XLA_FFI_CallFrame* frame) {
  if (asks_for_metadata(frame)) return nullptr;
  void** args = frame->args.args;
  const auto* position = static_cast<XLA_FFI_Buffer*>(args[0]);
  Plan plan{static_cast<const i32*>(static_cast<XLA_FFI_Buffer*>(args[9])->data)};
  const bool mesh = plan.next() != 0;
  const int dim = int(position->dims[1]);
  if (position->dtype == XLA_FFI_DataType_F64) choose<double>(frame, plan, dim, mesh);
  else choose<float>(frame, plan, dim, mesh);
  return nullptr;
}

// The free slots in the order of their numbers: for each its rank from 1 on, 0 for the others; and how many there are.
extern "C" XLA_FFI_Error* jaxtrace_rank(XLA_FFI_CallFrame* frame) {
  if (asks_for_metadata(frame)) return nullptr;
  Buffers in{frame->args.args}, out{frame->rets.rets};
  XLA_FFI_Buffer* flags = in.buffer();
  const auto* is_free = static_cast<const uint8_t*>(flags->data);
  const i32* number = in.next<i32>();
  i32 *rank = out.next<i32>(), *count = out.next<i32>();
  std::vector<std::pair<i32, int64_t>> found;
  std::memset(rank, 0, flags->dims[0] * sizeof(i32));
  for (int64_t i = 0; i < flags->dims[0]; ++i)
    if (is_free[i]) found.emplace_back(number[i], i);
  std::sort(found.begin(), found.end());
  for (size_t k = 0; k < found.size(); ++k) rank[found[k].second] = i32(k + 1);
  *count = i32(found.size());
  return nullptr;
}
