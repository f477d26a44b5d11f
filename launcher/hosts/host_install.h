#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strait::hosts {

// One file of a build, as it is installed on a host.
struct BuildFile {
  std::filesystem::path from;  // here
  std::string to;              // there, below the build's folder: "lib/libzmq.so.5"
  std::string hash;            // SHA-256, as sha256sum writes it
  std::uint64_t size = 0;
};

// One build of these sources: all that a host needs to run strait-stage. These are the program and
// the libraries that the loader finds for it here, without those of the system. install.sh adds a
// wrapper script with which the program finds them there.
struct Build {
  std::vector<BuildFile> files;
  bool has_cuda() const;  // its libtorch can use GPUs
};

// The build whose programs are in this folder. UserError: something is missing or cannot be read,
// or it is of other sources than this program. Writes nothing.
Build build_in(const std::filesystem::path& programs);

// Where to look for a build of the other kind: a build for CPUs in build/release/bin has one with
// CUDA in build/cuda/bin; one with CUDA has one for CPUs in build/cpu/bin. It need not exist.
std::filesystem::path programs_of_other_kind(const std::filesystem::path& programs, bool has_cuda);

// The index of the build for a host: prefers CUDA for a host with a GPU, and no CUDA for another
// host. Pure; `builds` is not empty.
std::size_t build_for_host(const std::vector<Build>& builds, bool host_has_gpu);

// The libraries in what the loader prints with LD_TRACE_LOADED_OBJECTS: name and path; the path is
// empty where none was found. Pure.
std::vector<std::pair<std::string, std::string>> loaded_libraries(const std::string& trace);

// Libraries that a CUDA library opens later by name: their files in the same folder. Empty for
// other libraries. Reads the folder.
std::vector<std::filesystem::path> loaded_on_demand(const std::filesystem::path& library);

// Whether the host's own library must be used: the C library's family, and drivers.
bool is_systems_own(const std::string& library);

struct InstallTarget {
  std::string host;    // as ssh takes it
  std::string config;  // for ssh -F; empty: the user's own
};

struct Installed {
  std::uint64_t sent = 0;  // bytes that the host did not have
  std::uint64_t all = 0;   // bytes of the build
  bool has_gpu = false;    // the host, by its driver
  bool has_cuda = false;   // the build
};

// install.sh, which a host runs.
extern const std::string_view kInstallScript;

// Receives the number of bytes sent so far.
using InstallProgress = std::function<void(std::uint64_t sent, std::uint64_t to_send)>;

// Installs the build that fits the host (build_for_host()) over ssh, into ~/.strait/builds/ID, and
// links ~/.strait/bin to it once the hashes of the files are right and the program prints its id;
// until then the host keeps its former build. Files that an earlier build has are not sent again.
// Keeps two builds. Blocks. UserError: with the host, the cause and the fix.
Installed install_on_host(const InstallTarget& target, const std::vector<Build>& builds,
                          const InstallProgress& progress);

}  // namespace strait::hosts
