#pragma once

#include <array>
#include <cstddef>
#include <string>

// The part of NCCL's interface that is used here, with the names, numbers and layouts of its
// manual. A build needs none of NCCL's headers, and a machine without a GPU lacks the library.
// Where nccl.h exists, tests/gpu/nccl_header_test.sh compares this file with it.
namespace strait::stages::nccl {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;
inline constexpr int kFloat32 = 7;
inline constexpr int kSum = 0;

struct UniqueId {
  std::array<char, 128> bytes;
};
struct Communicator;  // defined by the library
// The layout of version 2.14. Later versions append fields, and accept this one by its size.
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
  Result (*broadcast)(const void* from, void* to, std::size_t count, int type, int root,
                      Communicator* communicator, void* stream);
  // Calls between these are one call.
  Result (*group_start)();
  Result (*group_end)();
  Result (*get_async_error)(Communicator* communicator, Result* error);
  Result (*abort)(Communicator* communicator);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Communicator* communicator);
};

// The library of this process, which libtorch with CUDA has already loaded.
class Library {
 public:
  // net::LinkError (unusable), with a sentence: it cannot be loaded, or is too old.
  explicit Library(const std::string& file);

  const Functions& functions() const { return functions_; }
  std::string version() const;  // "2.29.7"
  // The error, with what the library says about it.
  std::string text(Result error, Communicator* communicator) const;

 private:
  Functions functions_{};
  int version_ = 0;
};

}  // namespace strait::stages::nccl
