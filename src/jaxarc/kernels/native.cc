// The hot part of a step for CPUs: one environment after the other, with real branches on the operation.
// Each function is the twin of one in Python and gives the same bits: `operations.py`, `starts.py` and `rules.py` in `envs`
// say what they mean.
// Without this: about 9 times slower.
// (Random play of 2,048 environments on two cores: 494,000 steps/s with, 57,000 without.)

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "native.h"

namespace {

using namespace jaxworlds;
using u32 = uint32_t;
constexpr int kPlanes = 4, kSide = 32;
// `native.py` tells the compiler the number of each `Operation`: `-DOP_PASTE=29` and so on.
#ifndef OP_PASTE
#error "no numbers of operations: compile this file through jaxarc.kernels.native"
#endif

inline u32 low_bits(int count) { return count >= kSide ? ~0u : (1u << std::max(count, 0)) - 1u; }

inline u32 reversed(u32 x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0F0F0F0Fu) | ((x & 0x0F0F0F0Fu) << 4);
  x = ((x >> 8) & 0x00FF00FFu) | ((x & 0x00FF00FFu) << 8);
  return (x >> 16) | (x << 16);
}

// Rows of one plane, always 32: those beyond the canvas are empty, so that loops have a fixed length.
struct alignas(32) Rows {
  u32 at[kSide];
};

// `kRows` is the number of rows if it is known when this is compiled, else 0: then `rows` says it.
template <int kRows>
inline void load(Rows& to, const u32* from, int rows) {
  const int n = kRows ? kRows : rows;
  std::memcpy(to.at, from, n * sizeof(u32));
  for (int r = n; r < kSide; ++r) to.at[r] = 0;
}

template <int kRows>
inline void store(u32* to, const Rows& from, int rows) {
  std::memcpy(to, from.at, (kRows ? kRows : rows) * sizeof(u32));
}

inline void active(Rows& to, int height, int width) {
  const u32 word = low_bits(width);
  for (int r = 0; r < kSide; ++r) to.at[r] = r < height ? word : 0;
}

struct Box {
  int top, left, bottom, right;
};

// The smallest box around the cells; false if there are none.
inline bool bounding_box(const Rows& cells, Box& box) {
  u32 columns = 0, filled = 0;
  for (int r = 0; r < kSide; ++r) {
    columns |= cells.at[r];
    filled |= u32(cells.at[r] != 0) << r;
  }
  if (!columns) return false;
  box = {__builtin_ctz(filled), __builtin_ctz(columns), 31 - __builtin_clz(filled), 31 - __builtin_clz(columns)};
  return true;
}

// Every run of a row of `region` that the seed touches.
inline u32 fill_runs(u32 seed, u32 region) {
  const u32 right = seed | ((region ^ (region + seed)) & region);
  u32 left = seed, way = region;
  for (int by = 1; by < kSide; by *= 2) {
    left |= way & (left >> by);
    way &= way >> by;
  }
  return right | left;
}

// All cells of `region` that the seed reaches: sweeps down and up until nothing changes.
inline void flood(Rows& filled, const Rows& region, int row) {
  filled.at[row] = fill_runs(filled.at[row], region.at[row]);
  for (bool changed = true; changed;) {
    changed = false;
    for (int r = 1; r < kSide; ++r) {
      const u32 entered = filled.at[r - 1] & region.at[r] & ~filled.at[r];
      if (entered) filled.at[r] |= fill_runs(entered, region.at[r]), changed = true;
    }
    for (int r = kSide - 2; r >= 0; --r) {
      const u32 entered = filled.at[r + 1] & region.at[r] & ~filled.at[r];
      if (entered) filled.at[r] |= fill_runs(entered, region.at[r]), changed = true;
    }
  }
}

// Five planes with rows and columns exchanged; the planes lie side by side, so that one instruction serves all.
inline void transpose(Rows (&planes)[5]) {
  alignas(32) u32 t[kSide][8] = {};
  for (int p = 0; p < 5; ++p)
    for (int r = 0; r < kSide; ++r) t[r][p] = planes[p].at[r];
  u32 mask = 0x0000FFFFu;
  for (int shift = 16; shift; shift >>= 1, mask ^= mask << shift)
    for (int r = 0; r < kSide; r = (r + shift + 1) & ~shift)
      for (int p = 0; p < 8; ++p) {
        const u32 swap = ((t[r][p] >> shift) ^ t[r + shift][p]) & mask;
        t[r][p] ^= swap << shift;
        t[r + shift][p] ^= swap;
      }
  for (int p = 0; p < 5; ++p)
    for (int r = 0; r < kSide; ++r) planes[p].at[r] = t[r][p];
}

struct Bank {
  const u32 *inputs, *outputs;
  const int32_t *input_sizes, *output_sizes, *first_pair, *num_train, *num_test;
  const float* cumulative;
  const int32_t* offset;
  int64_t pairs, tasks;
  int rows;
  int64_t within(int64_t place) const { return std::clamp<int64_t>(place, 0, pairs - 1); }
};

// A grid of the bank on a canvas of another height: rows cut off or added.
inline void load_fitted(Rows (&to)[kPlanes], const u32* from, int have, int rows) {
  const int n = std::min(have, rows);
  for (int p = 0; p < kPlanes; ++p) {
    std::memcpy(to[p].at, from + p * have, n * sizeof(u32));
    for (int r = n; r < kSide; ++r) to[p].at[r] = 0;
  }
}

struct Work {
  const u32 *planes, *clipboard, *clipboard_mask, *selection;
  const int32_t *height, *width, *operation, *place;
  Bank bank;
  u32 *new_planes, *new_clipboard, *new_clipboard_mask;
  int32_t *new_height, *new_width;
  uint8_t* valid;
  int rows;
  bool turns_about_center;
};

// One environment of `apply_operation`.
template <int kRows>
void work_one(const Work& job, int64_t i) {
  const int rows = kRows ? kRows : job.rows;
  int operation = job.operation[i];
  int height = job.height[i], width = job.width[i];
  bool valid = true;

  Rows grid[kPlanes], inside;
  for (int p = 0; p < kPlanes; ++p) load<kRows>(grid[p], job.planes + (i * kPlanes + p) * rows, rows);
  active(inside, height, width);
  for (int r = rows; r < kSide; ++r) inside.at[r] = 0;
  const u32* held = job.clipboard + i * kPlanes * rows;
  const u32* held_mask = job.clipboard_mask + i * rows;
  u32* new_held = job.new_clipboard + i * kPlanes * rows;
  u32* new_held_mask = job.new_clipboard_mask + i * rows;

  bool moves = operation >= OP_MOVE_UP && operation <= OP_MOVE_RIGHT;
  bool turns = operation >= OP_ROTATE_CLOCKWISE && operation <= OP_FLIP_UP_DOWN;
  bool copies = operation == OP_COPY || operation == OP_CUT;

  Rows cells;
  Box box{};
  bool some = false;
  if (operation >= 0 && operation <= OP_RESIZE && operation != OP_COPY_INPUT) {
    load<kRows>(cells, job.selection + i * rows, rows);
    if (operation != OP_RESIZE)
      for (int r = 0; r < kSide; ++r) cells.at[r] &= inside.at[r];
    some = bounding_box(cells, box);
    if (!some && operation < OP_COPY_INPUT) {
      u32 selected = 0;
      for (int r = 0; r < rows; ++r) selected |= job.selection[i * rows + r];
      if (selected) {  // off the grid, which is not the same as nothing selected
        valid = moves = turns = copies = false;
        operation = -1;
      } else if (moves || turns || operation == OP_CLEAR) {
        cells = inside;
        bounding_box(cells, box);
      }
    }
  }

  int top = box.top, left = box.left;  // where the corner of what is turned lands
  if (job.turns_about_center && (operation == OP_ROTATE_CLOCKWISE || operation == OP_ROTATE_COUNTER_CLOCKWISE)) {
    const int high = box.bottom - box.top + 1, wide = box.right - box.left + 1;
    const int shift = (high - wide) / 2;  // towards 0
    top += shift, left -= shift;
    if (top < 0 || left < 0 || top + wide > height || left + high > width) valid = turns = false;
  }

  bool lands = false, keeps = false;
  Rows patch[5];  // what lands, or goes to the clipboard, and its mask
  if (operation < 0 || operation > OP_RESIZE) {
  } else if (operation < OP_MOVE_UP) {
    bool paints = true;
    if (operation >= OP_FLOOD_0) {
      const int row = box.top;
      valid = paints = some && box.top == box.bottom && box.left == box.right;
      if (valid) {
        const u32 bit = cells.at[row];
        Rows same = inside;
        for (int p = 0; p < kPlanes; ++p) {
          const u32 flip = grid[p].at[row] & bit ? 0 : ~0u;
          for (int r = 0; r < kSide; ++r) same.at[r] &= grid[p].at[r] ^ flip;
        }
        flood(cells, same, row);
      }
    }
    if (paints) {
      const int colour = operation % OP_FLOOD_0;
      for (int p = 0; p < kPlanes; ++p) {
        const u32 bits = (colour >> p) & 1 ? ~0u : 0;
        for (int r = 0; r < kSide; ++r)
          grid[p].at[r] = (grid[p].at[r] & ~cells.at[r]) | (cells.at[r] & bits);
      }
    }
  } else if (moves) {
    lands = true;
    for (int p = 0; p < 5; ++p) {
      Rows taken;
      for (int r = 0; r < kSide; ++r) taken.at[r] = (p < kPlanes ? grid[p].at[r] : ~0u) & cells.at[r];
      if (operation == OP_MOVE_UP || operation == OP_MOVE_DOWN) {
        const bool up = operation == OP_MOVE_UP;
        std::memcpy(patch[p].at + !up, taken.at + up, (kSide - 1) * sizeof(u32));
        patch[p].at[up ? kSide - 1 : 0] = 0;
      } else if (operation == OP_MOVE_LEFT) {
        for (int r = 0; r < kSide; ++r) patch[p].at[r] = taken.at[r] >> 1;
      } else {
        for (int r = 0; r < kSide; ++r) patch[p].at[r] = taken.at[r] << 1;
      }
    }
  } else if (turns || (copies && some)) {
    // Lifted to the corner; a copy stays there.
    const int high = box.bottom - box.top + 1;
    for (int p = 0; p < 5; ++p) {
      int r = 0;
      for (; r < high; ++r)
        patch[p].at[r] = ((p < kPlanes ? grid[p].at[box.top + r] : ~0u) & cells.at[box.top + r]) >> box.left;
      for (; r < kSide; ++r) patch[p].at[r] = 0;
    }
    keeps = copies;
    lands = turns;
    if (turns) {
      const bool rotates = operation <= OP_ROTATE_COUNTER_CLOCKWISE;
      if (rotates) transpose(patch);
      int h = high, w = box.right - box.left + 1;
      if (rotates) std::swap(h, w);
      const bool mirrors = operation == OP_FLIP_LEFT_RIGHT || operation == OP_ROTATE_CLOCKWISE;
      for (int p = 0; p < 5; ++p) {
        const Rows turned = patch[p];
        Rows& to = patch[p];
        for (int r = 0; r < kSide; ++r) to.at[r] = 0;
        const int end = std::min(h, kSide - top);
        if (mirrors)
          for (int r = 0; r < end; ++r) to.at[top + r] = (reversed(turned.at[r]) >> (kSide - w)) << left;
        else
          for (int r = 0; r < end; ++r) to.at[top + r] = turned.at[h - 1 - r] << left;
      }
    }
  } else if (operation == OP_PASTE && some) {
    lands = true;
    for (int p = 0; p < 5; ++p) {
      const u32* from = p < kPlanes ? held + p * rows : held_mask;
      for (int r = 0; r < box.top; ++r) patch[p].at[r] = 0;
      for (int r = box.top; r < rows; ++r) patch[p].at[r] = from[r - box.top] << box.left;
      for (int r = rows; r < kSide; ++r) patch[p].at[r] = 0;
    }
  } else if (operation == OP_COPY_INPUT) {
    const int64_t place = job.bank.within(job.place[i]);
    load_fitted(grid, job.bank.inputs + place * kPlanes * job.bank.rows, job.bank.rows, rows);
    height = job.bank.input_sizes[2 * place], width = job.bank.input_sizes[2 * place + 1];
  } else if (operation == OP_RESIZE) {
    valid = some;
    if (some) height = box.bottom + 1, width = box.right + 1;
  } else if (copies) {
    valid = false;
  }

  if (keeps) {
    for (int p = 0; p < kPlanes; ++p) store<kRows>(new_held + p * rows, patch[p], rows);
    store<kRows>(new_held_mask, patch[kPlanes], rows);
  } else {
    if (new_held != held) std::memcpy(new_held, held, kPlanes * rows * sizeof(u32));
    if (new_held_mask != held_mask) std::memcpy(new_held_mask, held_mask, rows * sizeof(u32));
  }
  if (moves || turns || operation == OP_CLEAR || operation == OP_CUT)
    for (int p = 0; p < kPlanes; ++p)
      for (int r = 0; r < kSide; ++r) grid[p].at[r] &= ~cells.at[r];
  if (lands)
    for (int p = 0; p < kPlanes; ++p)
      for (int r = 0; r < kSide; ++r) {
        const u32 landed = patch[kPlanes].at[r] & inside.at[r];
        grid[p].at[r] = (grid[p].at[r] & ~landed) | (patch[p].at[r] & landed);
      }
  if (operation == OP_COPY_INPUT || operation == OP_RESIZE) active(inside, height, width);
  u32* out = job.new_planes + i * kPlanes * rows;
  for (int p = 0; p < kPlanes; ++p) {
    for (int r = 0; r < kSide; ++r) grid[p].at[r] &= inside.at[r];
    store<kRows>(out + p * rows, grid[p], rows);
  }
  job.new_height[i] = height, job.new_width[i] = width;
  job.valid[i] = valid;
}

// `agreement`: cells in which a grid and an output of the bank agree, and cells of the union of their active parts.
void agreement(const u32* planes, int height, int width, int rows, const Bank& bank, int64_t place,
               int32_t& agree, int32_t& all) {
  const u32* target = bank.outputs + place * kPlanes * bank.rows;
  const int have = bank.rows;
  height = std::clamp(height, 0, rows), width = std::clamp(width, 0, kSide);
  const int high = std::clamp(bank.output_sizes[2 * place], 0, std::min(rows, have));
  const int wide = std::clamp(bank.output_sizes[2 * place + 1], 0, kSide);
  const int n = std::min(height, high);
  const u32 both = low_bits(std::min(width, wide));
  int same = 0;
  for (int r = 0; r < n; ++r) {
    u32 differs = 0;
    for (int p = 0; p < kPlanes; ++p) differs |= planes[p * rows + r] ^ target[p * have + r];
    same += __builtin_popcount(both & ~differs);
  }
  agree = same;
  all = height * width + high * wide - n * std::min(width, wide);
}

struct Compare {
  const u32* planes;
  const int32_t *height, *width, *place;
  Bank bank;
  int32_t *agree, *all;
  int rows;
};

inline void compare_one(const Compare& job, int64_t i) {
  agreement(job.planes + i * kPlanes * job.rows, job.height[i], job.width[i], job.rows, job.bank,
            job.bank.within(job.place[i]), job.agree[i], job.all[i]);
}

// Threefry-2x32 with 20 rounds, as JAX has it.
inline void threefry(const u32* key, u32& x0, u32& x1) {
  static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const u32 keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  x0 += keys[0], x1 += keys[1];
  for (int round = 0; round < 5; ++round) {
    for (int turn : turns[round % 2]) {
      x0 += x1;
      x1 = ((x1 << turn) | (x1 >> (kSide - turn))) ^ x0;
    }
    x0 += keys[(round + 1) % 3];
    x1 += keys[(round + 2) % 3] + u32(round + 1);
  }
}

// The next key, and the words that choose task and pair, as `starts.sample_start` draws them.
inline void four_words(const u32* key, u32 (&words)[4]) {
  for (u32 k = 0; k < 2; ++k) {
    u32 x0 = 0, x1 = k;
    threefry(key, x0, x1);
    words[2 * k] = x0, words[2 * k + 1] = x1;
  }
}

struct Restart {
  const uint8_t* done;
  const u32 *planes, *clipboard, *clipboard_mask, *key;
  const int32_t *height, *width, *task, *mode, *pair;
  Bank bank;
  u32 *new_planes, *new_clipboard, *new_clipboard_mask, *new_key;
  int32_t *new_height, *new_width, *new_task, *new_mode, *new_pair, *agree, *all;
  int rows;
  bool draws_task, draws_pair;
};

// One environment of `restart`.
void restart_one(const Restart& job, int64_t i) {
  const int rows = job.rows;
  const size_t grid = kPlanes * rows * sizeof(u32), mask = rows * sizeof(u32);
  u32* planes = job.new_planes + i * kPlanes * rows;
  u32* held = job.new_clipboard + i * kPlanes * rows;
  u32* held_mask = job.new_clipboard_mask + i * rows;
  if (!job.done[i]) {
    if (job.new_planes != job.planes) std::memcpy(planes, job.planes + i * kPlanes * rows, grid);
    if (job.new_clipboard != job.clipboard) std::memcpy(held, job.clipboard + i * kPlanes * rows, grid);
    if (job.new_clipboard_mask != job.clipboard_mask)
      std::memcpy(held_mask, job.clipboard_mask + i * rows, mask);
    job.new_height[i] = job.height[i], job.new_width[i] = job.width[i];
    job.new_task[i] = job.task[i], job.new_mode[i] = job.mode[i], job.new_pair[i] = job.pair[i];
    job.new_key[2 * i] = job.key[2 * i], job.new_key[2 * i + 1] = job.key[2 * i + 1];
    job.agree[i] = 0, job.all[i] = 1;
    return;
  }
  const Bank& bank = job.bank;
  const int32_t offset = *bank.offset, last = int32_t(bank.tasks) - 1;
  u32 words[4];
  four_words(job.key + 2 * i, words);
  int32_t row = job.task[i] - offset;
  if (job.draws_task) {
    const float part = float(words[2] >> 8) * 0x1p-24f;
    row = int32_t(std::upper_bound(bank.cumulative, bank.cumulative + bank.tasks, part) - bank.cumulative);
  }
  row = std::clamp(row, 0, last);
  int32_t mode = job.mode[i];
  if ((mode == 1 ? bank.num_test[row] : bank.num_train[row]) <= 0) mode = 0;
  const int32_t count = mode == 1 ? bank.num_test[row] : bank.num_train[row];
  const int32_t pair = job.draws_pair ? (int32_t(words[3] >> 16) * count) >> 16
                                      : std::min(std::max(job.pair[i], 0), count - 1);
  const int64_t place = bank.within(bank.first_pair[row] + (mode == 1 ? bank.num_train[row] : 0) + pair);
  Rows source[kPlanes];
  load_fitted(source, bank.inputs + place * kPlanes * bank.rows, bank.rows, rows);
  for (int p = 0; p < kPlanes; ++p) store<0>(planes + p * rows, source[p], rows);
  std::memset(held, 0, grid);
  std::memset(held_mask, 0, mask);
  job.new_height[i] = bank.input_sizes[2 * place], job.new_width[i] = bank.input_sizes[2 * place + 1];
  job.new_task[i] = row + offset, job.new_mode[i] = mode, job.new_pair[i] = pair;
  job.new_key[2 * i] = words[0], job.new_key[2 * i + 1] = words[1];
  agreement(planes, job.new_height[i], job.new_width[i], rows, bank, place, job.agree[i], job.all[i]);
}

// --- what XLA hands over ---

Bank bank_from(Buffers& args) {
  Bank bank;
  XLA_FFI_Buffer* inputs = args.buffer();
  bank.inputs = static_cast<const u32*>(inputs->data);
  bank.pairs = inputs->dims[0], bank.rows = int(inputs->dims[2]);
  bank.outputs = args.next<u32>();
  bank.input_sizes = args.next<int32_t>(), bank.output_sizes = args.next<int32_t>();
  XLA_FFI_Buffer* first = args.buffer();
  bank.first_pair = static_cast<const int32_t*>(first->data), bank.tasks = first->dims[0];
  bank.num_train = args.next<int32_t>(), bank.num_test = args.next<int32_t>();
  bank.cumulative = args.next<float>(), bank.offset = args.next<int32_t>();
  return bank;
}

}  // namespace

extern "C" XLA_FFI_Error* jaxarc_work(XLA_FFI_CallFrame* frame) {
  if (asks_for_metadata(frame)) return nullptr;
  Buffers in{frame->args.args}, out{frame->rets.rets};
  Work job;
  XLA_FFI_Buffer* planes = in.buffer();
  job.planes = static_cast<const u32*>(planes->data), job.rows = int(planes->dims[2]);
  job.height = in.next<int32_t>(), job.width = in.next<int32_t>();
  job.clipboard = in.next<u32>(), job.clipboard_mask = in.next<u32>();
  job.operation = in.next<int32_t>(), job.selection = in.next<u32>(), job.place = in.next<int32_t>();
  job.bank = bank_from(in);
  job.new_planes = out.next<u32>();
  job.new_height = out.next<int32_t>(), job.new_width = out.next<int32_t>();
  job.new_clipboard = out.next<u32>(), job.new_clipboard_mask = out.next<u32>();
  job.valid = out.next<uint8_t>();
  job.turns_about_center = flag(frame, "turns_about_center");
  for_all(frame, job, job.rows == 30 ? work_one<30> : work_one<0>, planes->dims[0], 128);
  return nullptr;
}

extern "C" XLA_FFI_Error* jaxarc_compare(XLA_FFI_CallFrame* frame) {
  if (asks_for_metadata(frame)) return nullptr;
  Buffers in{frame->args.args}, out{frame->rets.rets};
  Compare job;
  XLA_FFI_Buffer* planes = in.buffer();
  job.planes = static_cast<const u32*>(planes->data), job.rows = int(planes->dims[2]);
  job.height = in.next<int32_t>(), job.width = in.next<int32_t>(), job.place = in.next<int32_t>();
  job.bank = bank_from(in);
  job.agree = out.next<int32_t>(), job.all = out.next<int32_t>();
  for_all(frame, job, compare_one, planes->dims[0], 256);
  return nullptr;
}

extern "C" XLA_FFI_Error* jaxarc_restart(XLA_FFI_CallFrame* frame) {
  if (asks_for_metadata(frame)) return nullptr;
  Buffers in{frame->args.args}, out{frame->rets.rets};
  Restart job;
  XLA_FFI_Buffer* planes = in.buffer();
  job.planes = static_cast<const u32*>(planes->data), job.rows = int(planes->dims[2]);
  job.height = in.next<int32_t>(), job.width = in.next<int32_t>();
  job.clipboard = in.next<u32>(), job.clipboard_mask = in.next<u32>();
  job.key = in.next<u32>();
  job.task = in.next<int32_t>(), job.mode = in.next<int32_t>(), job.pair = in.next<int32_t>();
  job.done = in.next<uint8_t>();
  job.bank = bank_from(in);
  job.new_planes = out.next<u32>();
  job.new_height = out.next<int32_t>(), job.new_width = out.next<int32_t>();
  job.new_clipboard = out.next<u32>(), job.new_clipboard_mask = out.next<u32>();
  job.new_key = out.next<u32>();
  job.new_task = out.next<int32_t>(), job.new_mode = out.next<int32_t>(), job.new_pair = out.next<int32_t>();
  job.agree = out.next<int32_t>(), job.all = out.next<int32_t>();
  job.draws_task = flag(frame, "draws_task"), job.draws_pair = flag(frame, "draws_pair");
  for_all(frame, job, restart_one, planes->dims[0], 512);
  return nullptr;
}
