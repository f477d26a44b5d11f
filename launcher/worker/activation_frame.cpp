#include "launcher/worker/activation_frame.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <utility>

#include "framework/bytes.h"
#include "launcher/base/errors.h"
#include "launcher/run/control_message.h"

namespace strait::worker {
namespace {

using Sizes = std::array<std::int64_t, 3>;

run::InferenceRequest request_of(std::span<const std::byte> bytes) {
  return std::visit(
      []<class Message>(Message&& message) -> run::InferenceRequest {
        if constexpr (std::is_constructible_v<run::InferenceRequest, Message&&>) {
          return std::forward<Message>(message);
        } else {
          throw base::MessageError("activations of a message that is no request");
        }
      },
      run::parse_coordinator_message(bytes));
}

// Whether exactly these values are left.
bool fits(const Sizes& sizes, std::size_t bytes) {
  const std::size_t values = bytes / sizeof(float);
  if (values * sizeof(float) != bytes) return false;
  std::size_t rest = values;
  for (const std::int64_t size : sizes) {
    if (size <= 0 || rest % static_cast<std::size_t>(size) != 0) return false;
    rest /= static_cast<std::size_t>(size);
  }
  return rest == 1;
}

}  // namespace

net::Frame end_frame() {
  net::Frame frame;
  append_value(frame, std::uint32_t{0});
  return frame;
}

net::Frame to_frame(const Activation& activation) {
  const net::Frame request =
      std::visit([](const auto& message) { return run::format(run::CoordinatorMessage{message}); },
                 activation.request);
  net::Frame frame;
  append_value(frame, static_cast<std::uint32_t>(request.size()));
  append_bytes(frame, std::span<const std::byte>(request.data(), request.size()));
  Sizes sizes{};
  if (activation.values.defined()) {
    TORCH_INTERNAL_ASSERT(activation.values.dim() == 3, "a hidden state has three dimensions");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = activation.values.size(static_cast<std::int64_t>(i));
    }
  }
  for (const std::int64_t size : sizes) append_value(frame, size);
  if (!activation.values.defined()) return frame;
  const at::Tensor values = activation.values.to(at::kCPU, at::kFloat).contiguous();
  append_bytes(frame, std::as_bytes(std::span(values.const_data_ptr<float>(),
                                              static_cast<std::size_t>(values.numel()))));
  return frame;
}

std::optional<Activation> read_activation(std::span<const std::byte> frame) {
  ByteReader reader(frame);
  const auto size = reader.value<std::uint32_t>();
  if (size == 0 && reader.complete()) return std::nullopt;
  const std::span<const std::byte> request = reader.bytes(size);
  Sizes sizes{};
  for (std::int64_t& one : sizes) one = reader.value<std::int64_t>();
  if (reader.failed()) throw base::MessageError("activations whose frame is too short");
  Activation activation{request_of(request), {}};
  if (sizes == Sizes{} && reader.complete()) return activation;
  const std::span<const std::byte> bytes = reader.rest();
  if (!fits(sizes, bytes.size())) {
    throw base::MessageError("activations whose sizes do not fit their bytes");
  }
  activation.values = at::empty(sizes, at::kFloat);
  std::memcpy(activation.values.mutable_data_ptr(), bytes.data(), bytes.size());
  return activation;
}

}  // namespace strait::worker
