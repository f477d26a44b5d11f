#include "framework/tensors/disk_tensor.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "framework/store/atomic_file.h"
#include "framework/store/store_error.h"

namespace strait::tensors {
namespace {

[[noreturn]] void refuse_room(const std::filesystem::path& file, const std::string& what,
                              std::size_t bytes, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EFBIG;
  throw store::StoreError(
      full ? store::StoreError::Kind::storage_full : store::StoreError::Kind::storage_io,
      fmt::format(
          "{} cannot have {} bytes on the disk of {}: {}; make room there, or keep it in memory",
          what, bytes, file.parent_path().string(), std::generic_category().message(error)));
}

}  // namespace

at::Tensor disk_zeros(at::IntArrayRef shape, at::ScalarType type, const std::filesystem::path& file,
                      const std::string& what) {
  const auto bytes =
      static_cast<std::size_t>(c10::multiply_integers(shape)) * at::elementSize(type);
  if (bytes == 0) return at::zeros(shape, type);  // nothing can be mapped
  const FileDescriptor made = store::unnamed_file(file);
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
