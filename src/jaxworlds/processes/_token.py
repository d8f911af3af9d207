"""The shared secret of a run's processes, and proofs of it that do not reveal it."""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

VARIABLE = "JAXWORLDS_TOKEN"
MAKE_ONE = f"export {VARIABLE}=$(openssl rand -hex 32)"
"""What people type to make a token."""
_SHORT = 16
_NONCE = 64


def run_token(*, loopback: bool, coordinator: str) -> bytes:
    """The token of this run: what the environment says, or on one machine a secret that only this user can read.

    Where there is neither, on one machine, it is empty: then anybody who has an account there can join the run.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return given.encode()
    if not loopback:
        raise ValueError(
            f"`{VARIABLE}` must be set where other machines can reach the coordinator ({coordinator}), to the same secret on all "
            f"hosts. Type `{MAKE_ONE}` before `srun` or `mpirun -x {VARIABLE}`; examples/launch/slurm.sh and ssh.sh make one "
            "by themselves."
        )
    # A secret of this user on this machine, created at first use.
    with contextlib.suppress(OSError, RuntimeError):
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        path = Path(base) / "jaxworlds" / "token"
        if not path.exists():
            _write_secret(path)
        return _read_secret(path)
    return b""


def weak(token: bytes) -> bool:
    """True for a token that can be guessed by trying, once a proof of it has been seen."""
    return 0 < len(token) < _SHORT


def new_nonce() -> str:
    """A number that is used once."""
    return secrets.token_hex(_NONCE // 2)


def is_nonce(text: str | None) -> bool:
    """True for what `new_nonce` could have made."""
    return text is not None and len(text) == _NONCE and set(text) <= set("0123456789abcdef")


def proof(token: bytes, side: str, hub_nonce: str, member_nonce: str) -> str:
    """Proof of the token for these two nonces; `side` prevents that an answer is reflected."""
    return _derive(token, side, hub_nonce, member_nonce).hex()


def proves(given: str | None, token: bytes, side: str, hub_nonce: str, member_nonce: str) -> bool:
    """True if an answer shows the token."""
    wanted = proof(token, side, hub_nonce, member_nonce)
    return given is not None and given.isascii() and hmac.compare_digest(given, wanted)


def session_key(token: bytes, hub_nonce: str, member_nonce: str) -> bytes:
    """The key of one connection."""
    return _derive(token, "key", hub_nonce, member_nonce)


def _derive(token: bytes, purpose: str, hub_nonce: str, member_nonce: str) -> bytes:
    text = f"jaxworlds {purpose} {hub_nonce} {member_nonce}"
    return hmac.new(token, text.encode(), hashlib.sha256).digest()


def _write_secret(path: Path) -> None:
    """Write a new secret unless another process does so first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".token-{secrets.token_hex(8)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w") as text:
            text.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _read_secret(path: Path) -> bytes:
    """The secret in a file that nobody else can read or write."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(file, "rb") as content:
        kind = os.fstat(content.fileno())
        private = stat.S_ISREG(kind.st_mode) and not kind.st_mode & 0o077
        if not private or (hasattr(os, "getuid") and kind.st_uid != os.getuid()):
            raise OSError(f"{path} is not private")
        return content.read(256).strip()
