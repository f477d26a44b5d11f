#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>

// A device for tests, which behaves like a GPU as far as memory and order go: "test:0", "test:1".
// It is there as soon as the library is loaded (README.md).
namespace strait::test_device {

inline c10::Device device(int index = 0) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

// Before the first use of any; 2 without it, or what STRAIT_TEST_DEVICE_COUNT says. At most 8.
void set_device_count(c10::DeviceIndex count);
c10::DeviceIndex device_count();

// device_guard.cpp
c10::Stream current_stream(c10::Device device);
c10::Stream stream_of_handle(void* native_handle);
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator host_generator(const at::Generator& of_device);  // draws the same numbers
bool is_pinned(const at::Tensor& tensor);
// A copy from or to pinned memory is issued: until the result is dropped the memory stays, whatever
// its owner does, and may be written again by its next owner.
std::shared_ptr<const void> begin_copy(const at::Tensor& tensor);

}  // namespace strait::test_device
