"""The version of jaxworlds, written down here and nowhere else: the build, `--version` and CITATION.cff follow."""

__version__ = "0.1.0"
