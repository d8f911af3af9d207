"""Particles on a sphere in double precision, by plain NumPy: what jaxtrace's paths on longitudes and latitudes are held to.

It shares no code with jaxtrace: velocities in m/s on a regular grid of longitudes and latitudes are interpolated linearly in
space and time, converted to degrees at the particle at each stage of RK4, and stepped in longitude and latitude.
"""

import numpy as np

RADIUS = 6_371_000.0


def interpolated(lon, lat, times, data, x, t):
    """Velocities `data` (times, lat, lon, 2) in m/s at points `x` (n, 2); NaN outside."""
    k = int(np.clip(np.searchsorted(times, t, side="right") - 1, 0, len(times) - 2)) if len(times) > 1 else 0
    after = 0.0 if len(times) == 1 else min(max((t - times[k]) / (times[k + 1] - times[k]), 0.0), 1.0)
    place, share = [], []
    outside = np.zeros(len(x), bool)
    for axis, nodes in enumerate((lon, lat)):
        with np.errstate(invalid="ignore"):
            at = (x[:, axis] - nodes[0]) / (nodes[1] - nodes[0])
            outside |= ~((at >= -1e-6) & (at <= len(nodes) - 1 + 1e-6))
        at = np.where(outside, 0.0, at)
        cell = np.clip(at.astype(int), 0, len(nodes) - 2)
        place.append(cell)
        share.append((at - cell)[:, None])
    (i, j), (a, b) = place, share
    found = 0.0
    for number, weight in ((k, 1 - after), (min(k + 1, len(times) - 1), after)):
        one = data[number]
        south = (1 - a) * one[j, i] + a * one[j, i + 1]
        north = (1 - a) * one[j + 1, i] + a * one[j + 1, i + 1]
        found = found + weight * ((1 - b) * south + b * north)
    return np.where(outside[:, None], np.nan, found)


def tracked(lon, lat, times, data, seeds, span, dt, radius=RADIUS):
    """Positions after RK4 steps of `dt` through `span`; NaN for particles that left the grid."""
    lon, lat, times, data = (np.asarray(part, np.float64) for part in (lon, lat, times, data))
    x = np.asarray(seeds, np.float64).copy()
    degree = radius * np.pi / 180
    steps = round((span[1] - span[0]) / dt)

    def rate(x, t):
        velocity = interpolated(lon, lat, times, data, x, t)
        return velocity / degree / np.stack([np.cos(np.deg2rad(x[:, 1])), np.ones(len(x))], -1)

    for step in range(steps):
        t = span[0] + step * dt
        k1 = rate(x, t)
        k2 = rate(x + dt / 2 * k1, t + dt / 2)
        k3 = rate(x + dt / 2 * k2, t + dt / 2)
        k4 = rate(x + dt * k3, t + dt)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def apart(one, other, radius=RADIUS):
    """Great-circle distances in metres between points (n, 2) of longitude and latitude in degrees."""
    (a, b), (c, d) = (np.deg2rad(np.asarray(x, np.float64)).T for x in (one, other))
    half = np.sin((b - d) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((a - c) / 2) ** 2
    return 2 * radius * np.arcsin(np.sqrt(np.clip(half, 0, 1)))


def on_axes(x):
    """Unit vectors (n, 3) of longitudes and latitudes in degrees."""
    lon, lat = np.deg2rad(np.asarray(x, np.float64)).T
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


def solid_body(x, pole, speed):
    """Velocities in m/s east and north of a rotation about the axis `pole`, `speed` on its equator."""
    lon, lat = np.deg2rad(np.asarray(x, np.float64)).T
    flow = speed * np.cross(np.asarray(pole) / np.linalg.norm(pole), on_axes(x))
    east = np.stack([-np.sin(lon), np.cos(lon), np.zeros_like(lon)], -1)
    north = np.stack([-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), np.cos(lat)], -1)
    return np.stack([(flow * east).sum(-1), (flow * north).sum(-1)], -1)


def turned_about(x, pole, angle):
    """Where a rotation by `angle` radians about the axis `pole` takes points, as longitudes and latitudes."""
    axis, at = np.asarray(pole) / np.linalg.norm(pole), on_axes(x)
    along = (at @ axis)[:, None] * axis
    end = along + (at - along) * np.cos(angle) + np.cross(axis, at) * np.sin(angle)
    return np.rad2deg(np.stack([np.arctan2(end[:, 1], end[:, 0]), np.arcsin(np.clip(end[:, 2], -1, 1))], -1))


def ocean(days=20, spacing=0.25, seed=0):
    """A job like GlobCurrent's: daily slices of eddies and a jet south of Africa, (lon, lat, seconds, data in m/s as float32)."""
    lon = np.arange(10.0, 45.0 + spacing / 2, spacing)
    lat = np.arange(-50.0, -25.0 + spacing / 2, spacing)
    times = 86_400.0 * np.arange(days + 1)
    key = np.random.default_rng(seed)
    x, y = np.meshgrid(lon, lat)
    data = np.zeros((len(times), len(lat), len(lon), 2))
    waves = [
        (key.uniform(1.0, 6.0), key.uniform(0, 2 * np.pi), key.uniform(0, 2 * np.pi), key.uniform(-1, 1) / 30)
        for _ in range(24)
    ]
    for k in range(len(times)):
        u = 0.8 * np.exp(-(((y + 39 + 2 * np.sin(np.deg2rad(10 * x + 3 * k))) / 2.0) ** 2))
        v = np.zeros_like(u)
        for length, turn, phase, drift in waves:
            number = 2 * np.pi / length
            angle = number * (np.cos(turn) * x + np.sin(turn) * y) + phase + 2 * np.pi * drift * k
            u = u - 0.12 * np.sin(turn) * np.sin(angle)
            v = v + 0.12 * np.cos(turn) * np.sin(angle)
        data[k] = np.stack([u, v], -1)
    return lon, lat, times, data.astype(np.float32)


def ocean_dataset(lon, lat, times, data):
    """The same as a CF data set."""
    import xarray

    dims = ("time", "lat", "lon")
    told = {"units": "m s-1"}
    return xarray.Dataset(
        {
            "u": (dims, data[..., 0], told | {"standard_name": "eastward_sea_water_velocity"}),
            "v": (dims, data[..., 1], told | {"standard_name": "northward_sea_water_velocity"}),
        },
        {
            "time": ("time", times, {"units": "seconds since 2002-01-01"}),
            "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": ("lon", lon, {"units": "degrees_east", "standard_name": "longitude"}),
        },
    )


def tracked_in_space(lon, lat, times, data, seeds, span, dt, radius=RADIUS):
    """The same by steps of RK4 for unit vectors: at home at the poles and on any turn, where `tracked` is not.

    Velocities are interpolated between the nodes as `interpolated` does it and turned into space at the particle. Columns that go
    round the globe have no edge. NaN for particles that left the grid.
    """
    lon, lat, times = (np.asarray(part, np.float64) for part in (lon, lat, times))
    point = on_axes(seeds)
    steps = round(abs(span[1] - span[0]) / dt)
    dt = (span[1] - span[0]) / steps

    def rate(p, t):
        east, north = np.arctan2(p[:, 1], p[:, 0]), np.arctan2(p[:, 2], np.hypot(p[:, 0], p[:, 1]))
        at = np.stack([lon[0] + np.mod(np.rad2deg(east) - lon[0], 360.0), np.rad2deg(north)], -1)
        u, v = interpolated(lon, lat, times, data, at, t).T[..., None]
        zero = np.zeros_like(east)
        eastward = np.stack([-np.sin(east), np.cos(east), zero], -1)
        northward = np.stack(
            [-np.sin(north) * np.cos(east), -np.sin(north) * np.sin(east), np.cos(north)], -1
        )
        return (u * eastward + v * northward) / radius

    for step in range(steps):
        t = span[0] + step * dt
        k1 = rate(point, t)
        k2 = rate(point + dt / 2 * k1, t + dt / 2)
        k3 = rate(point + dt / 2 * k2, t + dt / 2)
        k4 = rate(point + dt * k3, t + dt)
        point = point + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        point = point / np.linalg.norm(point, axis=1, keepdims=True)
    x, y, z = point.T
    return np.stack([np.rad2deg(np.arctan2(y, x)), np.rad2deg(np.arctan2(z, np.hypot(x, y)))], -1)


def eddies(lon, lat, days=20, seed=0, length=300e3, speed=0.15, radius=RADIUS):
    """Daily slices of drifting eddies in m/s as float32, (times, data): smooth on the sphere, the poles included.

    The stream function is a sum of waves in space along random directions, `length` metres from crest to crest.
    """
    key = np.random.default_rng(seed)
    x, y = np.meshgrid(lon, lat)
    point = on_axes(np.stack([x.ravel(), y.ravel()], -1))
    a, b = np.deg2rad(x.ravel()), np.deg2rad(y.ravel())
    east = np.stack([-np.sin(a), np.cos(a), 0 * a], -1)
    north = np.stack([-np.sin(b) * np.cos(a), -np.sin(b) * np.sin(a), np.cos(b)], -1)
    waves = []
    for _ in range(12):
        way = key.normal(size=3)
        number = 2 * np.pi * radius / (length * key.uniform(0.7, 2.0)) * way / np.linalg.norm(way)
        across = np.cross(point, number / np.linalg.norm(number))
        waves.append(
            (
                point @ number + key.uniform(0, 2 * np.pi),
                key.uniform(-0.3, 0.3),
                across,
                key.uniform(0.5, 1.5),
            )
        )
    times, data = 86_400.0 * np.arange(days + 1), []
    for k in range(days + 1):
        flow = sum(
            speed * size * np.cos(angle + drift * k)[:, None] * across for angle, drift, across, size in waves
        )
        data.append(np.stack([(flow * east).sum(-1), (flow * north).sum(-1)], -1).reshape(*x.shape, 2))
    return times, np.stack(data).astype(np.float32)
