# How Spack builds Trireme, from a checkout:
#   spack repo add tools/packages/spack
#   spack dev-build trireme@main         in the checkout; or spack install trireme, with `git` below set to where it lies
from spack.package import *


class Trireme(MesonPackage):
    """Training of large machine-learning models on many ranks of Open MPI."""

    license("Apache-2.0")
    git = "file:///path/to/trireme"
    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("meson@1:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openmpi@4.1:")
    depends_on("hdf5@1.10: ~mpi +shared")
    depends_on("blis threads=none +cblas")
    depends_on("libyaml")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("libarchive")
    depends_on("libmicrohttpd")

    def meson_args(self):
        return ["-Dtests=false"]
