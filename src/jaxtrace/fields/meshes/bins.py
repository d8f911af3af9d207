"""Search structures of a mesh, built once on the host: bins, links across hanging faces, clear space behind walls."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

_CHUNK = 200_000


class Simplices(NamedTuple):
    """Simplices with the affine maps to their barycentric coordinates 1 … dim, in double precision."""

    corners: Float[np.ndarray, "simplices dim1 dim"]
    inverse: Float[np.ndarray, "simplices dim dim"]

    @classmethod
    def of(cls, corners: Float[np.ndarray, "simplices dim1 dim"]) -> "Simplices":
        return cls(corners, np.linalg.inv(np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2)))

    def coordinates(
        self, which: Int[np.ndarray, " n"], x: Float[np.ndarray, "n points dim"]
    ) -> Float[np.ndarray, "n points dim1"]:
        """All barycentric coordinates of points in the simplices `which`."""
        rest = np.einsum("nij,npj->npi", self.inverse[which], x - self.corners[which, :1])
        return np.concatenate([1 - rest.sum(-1, keepdims=True), rest], -1)


class Bins(NamedTuple):
    """A uniform lattice of boxes; box b holds the simplices `members[first[b]:first[b + 1]]` that reach into it."""

    origin: Float[np.ndarray, " dim"]
    width: Float[np.ndarray, " dim"]
    shape: tuple[int, ...]
    first: Int[np.ndarray, " bins1"]
    members: Int[np.ndarray, " entries"]
    start: Int[np.ndarray, " bins"]

    def position(self, x: Float[np.ndarray, "n dim"]) -> Int[np.ndarray, "n dim"]:
        """Lattice position of the box around each point, the nearest one outside the lattice."""
        return np.clip((x - self.origin) / self.width, 0, np.asarray(self.shape) - 1).astype(int)


def _boxes_between(
    low: Int[np.ndarray, "n dim"], high: Int[np.ndarray, "n dim"], shape: tuple[int, ...]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Pairs of item and box for all boxes from `low` to `high`, both included."""
    extent = high - low + 1
    counts = extent.prod(1)
    item = np.repeat(np.arange(len(low)), counts)
    rest = np.arange(len(item)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = []
    for axis in reversed(range(len(shape))):
        place.append(low[item, axis] + rest % extent[item, axis])
        rest = rest // extent[item, axis]
    return item, np.asarray(np.ravel_multi_index(tuple(place[::-1]), shape))


def build_bins(simplices: Simplices) -> Bins:
    """Bins about as wide as two cells, with their members and one simplex to start a walk from."""
    from scipy import ndimage

    corners, dim = simplices.corners, simplices.corners.shape[-1]
    low, high = corners.min((0, 1)), corners.max((0, 1))
    side = (np.prod(high - low) * 2**dim / len(corners)) ** (1 / dim)
    shape = tuple(int(n) for n in np.clip(np.ceil((high - low) / side), 1, len(corners)))
    empty = np.zeros(0, int)
    bins = Bins(low, (high - low) / shape, shape, empty, empty, empty)
    margin = 1e-3 * bins.width  # a point near an edge may be rounded into the next box
    item, box = _boxes_between(
        bins.position(corners.min(1) - margin), bins.position(corners.max(1) + margin), shape
    )
    middle = low + (np.stack(np.unravel_index(box, shape), -1) + 0.5) * bins.width
    touching: list[np.ndarray] = []
    nearness: list[np.ndarray] = []
    for k in range(0, len(item), _CHUNK):
        rows = item[k : k + _CHUNK]
        at = simplices.coordinates(rows, middle[k : k + _CHUNK, None])[:, 0]
        gradient = simplices.inverse[rows]
        gradient = np.concatenate([-gradient.sum(1, keepdims=True), gradient], 1)
        reach = np.abs(gradient) @ (bins.width * 0.502)
        touching.append(np.all(at + reach >= 0, axis=-1))
        nearness.append(at.min(-1))
    keep = np.concatenate(touching)
    item, box, near = item[keep], box[keep], np.concatenate(nearness)[keep]
    order = np.lexsort((-near, box))  # the simplex around the middle of the box comes first
    item, box = item[order], box[order]
    first = np.searchsorted(box, np.arange(np.prod(shape) + 1))
    start = np.full(int(np.prod(shape)), -1)
    filled = first[1:] > first[:-1]
    start[filled] = item[first[:-1][filled]]
    if not filled.all():
        nearest = ndimage.distance_transform_edt(
            ~filled.reshape(shape), return_distances=False, return_indices=True
        )
        start = start[np.ravel_multi_index(tuple(np.asarray(nearest)), shape).reshape(-1)]
    return bins._replace(first=first, members=item, start=start)


def find(
    simplices: Simplices, bins: Bins, x: Float[np.ndarray, "n dim"], without: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Simplex around each point other than the one in `without`, or -1."""
    found = np.full(len(x), -1)
    box = np.asarray(np.ravel_multi_index(tuple(bins.position(x).T), bins.shape))
    slot, rows = bins.first[box], np.arange(len(x))
    while len(rows := rows[(found[rows] < 0) & (slot[rows] < bins.first[box[rows] + 1])]):
        candidate = bins.members[slot[rows]]
        inside = simplices.coordinates(candidate, x[rows, None]).min((1, 2)) > -1e-9
        hit = inside & (candidate != without[rows])
        found[rows[hit]] = candidate[hit]
        slot[rows] += 1
    return found


def link_hanging_faces(
    simplices: Simplices, bins: Bins, links: Int[np.ndarray, "simplices dim1"]
) -> Int[np.ndarray, "simplices dim1"]:
    """Links with one more for each unmatched face that has a simplex behind its middle: the walk does the rest."""
    owner, face = np.nonzero(links < 0)
    corners = simplices.corners[owner]
    opposite = corners[np.arange(len(owner)), face]
    middle = (corners.sum(1) - opposite) / simplices.inverse.shape[-1]
    behind = find(simplices, bins, middle + 1e-4 * (middle - opposite), owner)
    linked = links.copy()
    linked[owner[behind >= 0], face[behind >= 0]] = behind[behind >= 0]
    return linked


def clear_space(
    simplices: Simplices, bins: Bins, walls: Bool[np.ndarray, "simplices dim1"]
) -> Float[np.ndarray, " simplices"]:
    """How far behind its walls each simplex can be extended without meeting another, in its own height; 0 if unknown.

    A point that a walk finds in that space lies outside the mesh: no search of the bin is needed to prove it.
    """
    clear = np.zeros(len(walls))
    open_ = np.flatnonzero(walls.any(1))
    for depth in (0.5, 0.25, 0.1, 0.03):
        blocked = _meets_others(simplices, bins, open_, depth * walls[open_])
        clear[open_[~blocked]] = depth
        open_ = open_[blocked]
    return clear


def _meets_others(
    simplices: Simplices, bins: Bins, which: Int[np.ndarray, " n"], depth: Float[np.ndarray, "n dim1"]
) -> Bool[np.ndarray, " n"]:
    """Whether the simplices, each face moved out by `depth`, may overlap others (never False when they do)."""
    corners = simplices.corners[which]
    grown = (1 + depth.sum(1))[:, None, None] * corners - (depth[:, :, None] * corners).sum(1, keepdims=True)
    low, high = grown.min(1), grown.max(1)
    item, box = _boxes_between(bins.position(low), bins.position(high), bins.shape)
    counts = bins.first[box + 1] - bins.first[box]
    meets = np.zeros(len(which), bool)
    for rows in np.array_split(np.arange(len(item)), counts.sum() // _CHUNK + 1):
        n = counts[rows]
        one = np.repeat(item[rows], n)
        slots = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n) + np.repeat(bins.first[box[rows]], n)
        other = bins.members[slots]
        theirs = simplices.corners[other]
        near = ((theirs.min(1) < high[one]) & (theirs.max(1) > low[one])).all(-1) & (other != which[one])
        one, other = np.divmod(
            np.unique(one[near] * len(simplices.corners) + other[near]), len(simplices.corners)
        )
        at = simplices.coordinates(which[one], simplices.corners[other])
        # Nothing of the added space lies in front of all walls, behind an open face, or beyond the depth.
        apart = ((at.min(1) >= -1e-9) | (depth[one] == 0)).all(-1) | (at.max(1) <= 1e-9 - depth[one]).any(-1)
        one, other = one[~apart], other[~apart]
        apart = (simplices.coordinates(other, grown[one]).max(1) <= 1e-9).any(-1)
        meets[one[~apart]] = True
    return meets


def clear_balls(
    corners: Float[np.ndarray, "simplices dim1 dim"], walls: Bool[np.ndarray, "simplices dim1"]
) -> Float[np.ndarray, "simplices dim1"]:
    """For each simplex its middle and a radius: no wall enters that ball, so a step within it meets none."""
    from scipy.spatial import KDTree

    middle = corners.mean(1)
    owner, face = np.nonzero(walls)
    opposite = corners[owner, face]
    faces = corners[owner][np.arange(corners.shape[1]) != face[:, None]].reshape(
        len(owner), -1, corners.shape[2]
    )
    centre = faces.mean(1)
    reach = np.linalg.norm(faces - centre[:, None], axis=-1).max(1)
    # The direction across a face: what is left of the way to the corner opposite when the ways along it are removed.
    along = np.linalg.qr(np.swapaxes(faces[:, 1:] - faces[:, :1], 1, 2))[0]
    across = opposite - centre
    across = across - np.einsum("fij,fkj,fk->fi", along, along, across)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    radius = np.full(len(middle), np.inf)
    size = np.floor(np.log2(reach))
    for one in np.unique(size):
        # Faces of about one size: the largest of all would spoil the bound for small ones.
        rows = np.flatnonzero(size == one)
        tree, largest = KDTree(centre[rows]), reach[rows].max()
        bound = np.asarray(tree.query(middle)[0]) - largest
        near = np.flatnonzero(bound < 4 * largest)
        count = min(16, len(rows))
        for part in np.array_split(near, len(near) // _CHUNK + 1):
            far, which = (np.reshape(found, (-1, count)) for found in tree.query(middle[part], count))
            which = rows[which]
            offset = middle[part][:, None] - centre[which]
            height = np.abs((offset * across[which]).sum(-1))
            beside = np.sqrt(np.maximum((offset**2).sum(-1) - height**2, 0))
            # The distance to a disc around the face; a face that is not among these is at least so far away.
            distance = np.hypot(height, np.maximum(beside - reach[which], 0)).min(1)
            rest = far[:, -1] - largest if count < len(rows) else np.inf
            bound[part] = np.minimum(distance, rest)
        radius = np.minimum(radius, bound)
    return np.c_[middle, np.maximum(radius, 0)]
