#include "framework/codec/raw.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "framework/codec/message.h"

namespace strait::codec {
namespace {

void count_raw_tensor(const TensorHeader& header, std::size_t payload_bytes, Traffic& traffic) {
  ++traffic.messages;
  traffic.rows += static_cast<std::uint64_t>(header.rows.size());
  traffic.raw_bytes += header.raw_bytes();
  traffic.payload_bytes += payload_bytes;
}

}  // namespace

void RawEncoder::encode(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame) {
  at::Tensor wire = tensor;
  // A copy is made only if the tensor cannot be sent as it is.
  if (tensor.scalar_type() != wire_ || !tensor.is_cpu() || !tensor.is_contiguous()) {
    wire = pool_.take(tensor.sizes());
    wire.copy_(tensor.detach());
  }
  const std::size_t token_bytes = static_cast<std::size_t>(header.width) * wire.element_size();
  const auto* from = static_cast<const std::byte*>(wire.const_data_ptr());
  const std::size_t begin = frame.size();
  std::size_t at = begin;
  frame.resize(at + static_cast<std::size_t>(header.rows.tokens()) * token_bytes);
  // Rows are copied without their padding, so that the frame holds tokens only.
  for (const Row& row : header.rows.rows) {
    const std::size_t bytes = static_cast<std::size_t>(row.length()) * token_bytes;
    if (bytes != 0) std::memcpy(frame.data() + at, from, bytes);
    at += bytes;
    from += static_cast<std::size_t>(header.rows.padded_length) * token_bytes;
  }
  count_raw_tensor(header, frame.size() - begin, traffic_);
}

Decoded RawDecoder::decode(const TensorHeader& header, std::span<const std::byte> payload) {
  const Rows& rows = header.rows;
  const std::size_t token_bytes = static_cast<std::size_t>(header.width) * c10::elementSize(wire_);
  const std::size_t expected = static_cast<std::size_t>(rows.tokens()) * token_bytes;
  if (payload.size() != expected) {
    throw CodecError(
        fmt::format("a raw payload has {} bytes where its {} tokens of width {} take {}",
                    payload.size(), rows.tokens(), header.width, expected));
  }
  const std::array<std::int64_t, 3> shape{rows.size(), rows.padded_length, header.width};
  // Without a conversion the wire tensor is the result, so it must come from the pool whose tensors
  // callers hold.
  TensorPool& pool = wire_ == result_ ? result_pool_ : wire_pool_;
  at::Tensor wire = pool.take(shape);
  auto* to = static_cast<std::byte*>(wire.mutable_data_ptr());
  const std::byte* from = payload.data();
  const std::size_t row_bytes = static_cast<std::size_t>(rows.padded_length) * token_bytes;
  for (const Row& row : rows.rows) {
    const std::size_t bytes = static_cast<std::size_t>(row.length()) * token_bytes;
    if (bytes != 0) std::memcpy(to, from, bytes);
    if (bytes != row_bytes) std::memset(to + bytes, 0, row_bytes - bytes);
    from += bytes;
    to += row_bytes;
  }
  count_raw_tensor(header, payload.size(), traffic_);
  if (wire_ == result_) return Decoded{std::move(wire), {}};
  at::Tensor result = result_pool_.take(shape);
  result.copy_(wire);
  return Decoded{std::move(result), {}};
}

}  // namespace strait::codec
