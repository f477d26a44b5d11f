#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
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

// All that a host needs to run this build's strait-stage: the program, every library that the
// loader gives it here but those of the system itself, and a starter that makes it find them.
// UserError: something is missing or cannot be read. The starter is written to `scratch`.
std::vector<BuildFile> files_of_this_build(const std::filesystem::path& scratch);

// The libraries in what the loader prints with LD_TRACE_LOADED_OBJECTS: name and path; the path is
// empty where none was found. Pure.
std::vector<std::pair<std::string, std::string>> loaded_libraries(const std::string& trace);

// Libraries that come into play only later, by name: those that lie beside a library of CUDA. Their
// paths; none for other libraries. Reads the folder.
std::vector<std::filesystem::path> loaded_on_demand(const std::filesystem::path& library);

// Whether a library has to be the host's own: the C library's family, and drivers.
bool is_systems_own(const std::string& library);

}  // namespace strait::hosts
