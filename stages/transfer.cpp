#include "stages/transfer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/current_stream.h"

namespace strait::stages {
namespace {

std::optional<c10::Stream> own_stream(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return kernels::stream_for_copies(device);
}

}  // namespace

Transfer::Transfer(at::Device device)
    : device_(device), down_(own_stream(device)), up_(own_stream(device)) {}

at::Tensor Transfer::Pinned::take(const at::Tensor& like) {
  const at::ScalarType type = like.scalar_type();
  auto found = std::ranges::find(pools_, type, [](const auto& one) { return one.first; });
  if (found == pools_.end()) {
    found = pools_.emplace(found, type, codec::TensorPool(type, /*pinned=*/true));
  }
  return found->second.take(like.sizes());
}

Copied Transfer::to_host(const at::Tensor& tensor) {
  if (!down_) return {tensor};
  const at::NoGradGuard no_grad;
  const at::Tensor from = tensor.detach();
  const auto computed = kernels::event_on(kernels::current_stream(device_));
  at::Tensor host = going_down_.take(from);
  const c10::StreamGuard copying(*down_);
  computed->block(*down_);
  host.copy_(from, /*non_blocking=*/true);
  // Otherwise the allocator could reuse the memory before it has been read.
  from.record_stream(*down_);
  return {std::move(host), kernels::event_on(*down_)};
}

Copied Transfer::lend(const at::Tensor& tensor) const {
  if (!down_) return {tensor};
  return {tensor.detach(), kernels::event_on(kernels::current_stream(device_))};
}

at::Tensor Transfer::wait(Copied copied) {
  if (copied.done == nullptr) return std::move(copied.tensor);
  if (copied.tensor.is_cpu()) {
    copied.done->synchronize();
  } else {
    copied.done->block(kernels::current_stream(copied.tensor.device()));
  }
  return std::move(copied.tensor);
}

Copied Transfer::to_device(at::Tensor host) {
  if (!up_) return {std::move(host)};
  if (!host.is_cpu()) return {std::move(host), kernels::event_on(kernels::current_stream(device_))};
  const at::NoGradGuard no_grad;
  // Pinned memory stays in use until its copy is done; uploads end in order.
  while (!uploads_.empty() && uploads_.front().done->query()) uploads_.pop_front();
  at::Tensor from = going_up_.take(host);
  from.copy_(host);
  const c10::StreamGuard copying(*up_);
  at::Tensor tensor = at::empty(host.sizes(), host.options().device(device_));
  tensor.copy_(from, /*non_blocking=*/true);
  Copied copied{std::move(tensor), kernels::event_on(*up_)};
  uploads_.push_back({std::move(from), copied.done});
  return copied;
}

at::Tensor Transfer::arrive(Copied copied) const {
  if (copied.done == nullptr) return std::move(copied.tensor);
  const c10::Stream computing = kernels::current_stream(device_);
  copied.done->block(computing);
  // It was allocated on the other stream, which does not know of this stream's work.
  copied.tensor.record_stream(computing);
  return std::move(copied.tensor);
}

}  // namespace strait::stages
