#pragma once

#include <array>
#include <cstddef>
#include <string>

// NCCL's interface by the names, numbers and layouts of its manual, as far as it is used here: a
// build needs no header of it, and a machine without a GPU has no such library. Where there is
// nccl.h, tests/gpu/nccl_header_test.sh holds this file against it.
namespace strait::stages::nccl {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;
inline constexpr int kFloat32 = 7;
inline constexpr int kSum = 0;

struct UniqueId {
  std::array<char, 128> bytes;
};
struct Communicator;  // the library's own
// Of version 2.14; later ones have more behind it and take this one, too, by its size.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
inline constexpr int kLeastVersion = 21400;

struct Functions {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank_config)(Communicator** made, int ranks, UniqueId id, int rank, Config* config);
  Result (*all_reduce)(const void* from, void* to, std::size_t count, int type, int operation,
                       Communicator* communicator, void* stream);
  Result (*get_async_error)(Communicator* communicator, Result* error);
  Result (*abort)(Communicator* communicator);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Communicator* communicator);
};

// The library of this process: libtorch with CUDA has loaded it already.
class Library {
 public:
  // net::LinkError (unusable), a sentence: it cannot be loaded, or is too old.
  explicit Library(const std::string& file);

  const Functions& functions() const { return functions_; }
  std::string version() const;  // "2.29.7"
  // The error and what the library says of it.
  std::string text(Result error, Communicator* communicator) const;

 private:
  Functions functions_{};
  int version_ = 0;
};

}  // namespace strait::stages::nccl
