#include "framework/codec/raw.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "framework/codec/codec_error.h"

namespace strait::codec {

void RawEncoder::encode(const at::Tensor& tensor, const Rows& rows, net::Frame& frame) {
  const at::Tensor wire = tensor.detach().to(at::kCPU, wire_).contiguous();
  const std::size_t token_bytes = static_cast<std::size_t>(tensor.size(2)) * wire.element_size();
  const auto* from = static_cast<const std::byte*>(wire.const_data_ptr());
  std::size_t at = frame.size();
  frame.resize(at + static_cast<std::size_t>(rows.tokens()) * token_bytes);
  for (const Row& row : rows.rows) {
    const std::size_t bytes = static_cast<std::size_t>(row.length()) * token_bytes;
    std::memcpy(frame.data() + at, from, bytes);
    at += bytes;
    from += static_cast<std::size_t>(rows.padded_length) * token_bytes;
  }
}

at::Tensor RawDecoder::decode(std::span<const std::byte> payload, const Rows& rows,
                              std::int64_t width) {
  const std::size_t token_bytes = static_cast<std::size_t>(width) * c10::elementSize(wire_);
  const std::size_t expected = static_cast<std::size_t>(rows.tokens()) * token_bytes;
  if (payload.size() != expected) {
    throw CodecError(
        fmt::format("a raw payload has {} bytes where its {} tokens of width {} take {}",
                    payload.size(), rows.tokens(), width, expected));
  }
  const bool padded = rows.tokens() != rows.size() * rows.padded_length;
  const auto options = at::TensorOptions().dtype(wire_);
  at::Tensor wire = padded ? at::zeros({rows.size(), rows.padded_length, width}, options)
                           : at::empty({rows.size(), rows.padded_length, width}, options);
  auto* to = static_cast<std::byte*>(wire.mutable_data_ptr());
  const std::byte* from = payload.data();
  for (const Row& row : rows.rows) {
    const std::size_t bytes = static_cast<std::size_t>(row.length()) * token_bytes;
    if (bytes != 0) std::memcpy(to, from, bytes);
    from += bytes;
    to += static_cast<std::size_t>(rows.padded_length) * token_bytes;
  }
  return wire.to(result_);
}

}  // namespace strait::codec
