#include "framework/tensors/disk_tensor.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "framework/file_descriptor.h"
#include "framework/store/store_error.h"

namespace strait::tensors {
namespace {

FileDescriptor unlinked_file(const std::filesystem::path& file, const std::string& what) {
  std::string name = file.string() + ".XXXXXX";
  FileDescriptor made(::mkostemp(name.data(), O_CLOEXEC));
  if (!made.open()) throw store::system_error("make a file for " + what, name, errno);
  // The kernel frees its blocks with the last mapping, whatever ends the process.
  ::unlink(name.c_str());
  return made;
}

[[noreturn]] void refuse_room(const std::filesystem::path& file, const std::string& what,
                              std::size_t bytes, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EFBIG;
  throw store::StoreError(
      full ? store::StoreError::Kind::storage_full : store::StoreError::Kind::storage_io,
      fmt::format("{} cannot have {} bytes in {}: {}; make room there, or give it less", what,
                  bytes, file.parent_path().string(), std::generic_category().message(error)));
}

}  // namespace

at::Tensor disk_zeros(at::IntArrayRef shape, at::ScalarType type, const std::filesystem::path& file,
                      const std::string& what) {
  const auto bytes =
      static_cast<std::size_t>(c10::multiply_integers(shape)) * at::elementSize(type);
  if (bytes == 0) return at::zeros(shape, type);  // nothing can be mapped
  const FileDescriptor made = unlinked_file(file, what);
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(made.number(), 0, static_cast<off_t>(bytes));
  if (error != 0) refuse_room(file, what, bytes, error);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.number(), 0);
  if (mapped == MAP_FAILED) refuse_room(file, what, bytes, errno);
  return at::from_blob(
      mapped, shape, [bytes](void* address) { ::munmap(address, bytes); },
      at::TensorOptions().dtype(type));
}

}  // namespace strait::tensors
