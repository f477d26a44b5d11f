#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace strait::tensors {

// Zeros on the disk, as a tensor of the CPU: a file that is mapped into memory, for what need not
// stay there. The kernel writes it to the disk and reads it again as memory allows.
//
// The file's name begins with `file`, whose folder must exist. It is unlinked while open, so that
// a killed process leaves none. Its blocks are reserved here, so that a full disk is a StoreError
// and not a SIGBUS later. `what` it is for stands in messages: "the activation cache".
at::Tensor disk_zeros(at::IntArrayRef shape, at::ScalarType type, const std::filesystem::path& file,
                      const std::string& what);

}  // namespace strait::tensors
