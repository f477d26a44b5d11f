#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "framework/codec/message.h"
#include "framework/codec/settings.h"
#include "framework/codec/traffic.h"
#include "framework/net/link.h"
#include "kernels/group_format.h"

namespace strait::codec {

// Tensor to bytes. One object per direction of one boundary. Its state depends only on the bytes
// that it wrote, so that the decoder can follow it. Called by one thread at a time, in the order in
// which the frames are sent.
class Encoder {
 public:
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  virtual ~Encoder() = default;

  // Appends the payload of `tensor` [rows, padded_length, width] to `frame`, which already holds
  // the header; padding is not sent.
  virtual void encode(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame) = 0;

  // The peer lacks the base of a message of this step. Appends header.rows as this end caches them
  // after that message. Throws CodecError if a row is not cached.
  virtual void encode_whole(const TensorHeader& header, net::Frame& frame);

  // Whether encode() also takes tensors of a device. It then works on the current stream.
  virtual bool takes_device() const { return false; }

  // Sums since construction.
  virtual Traffic traffic() const = 0;
};

// The tensor of one message. `missing` are the indices of rows whose base this end does not hold
// with the sender's bits. Their values are unset until complete().
struct Decoded {
  // [rows, padded_length, width]; padding is zero. On a device the current stream computes them.
  at::Tensor values;
  std::vector<std::int64_t> missing;
};

// Bytes to tensor: the other end of an Encoder, fed the same payloads in the same order.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // Throws CodecError if the payload does not match the header. The header is within the run's
  // limits: the caller has compared them, since few bytes may stand for many values.
  virtual Decoded decode(const TensorHeader& header, std::span<const std::byte> payload) = 0;

  // `payload` is what encode_whole() wrote for the missing rows of `values`; header.rows are those
  // rows, `places` their indices in `values`.
  virtual void complete(const TensorHeader& header, std::span<const std::byte> payload,
                        std::span<const std::int64_t> places, const at::Tensor& values);

  virtual Traffic traffic() const = 0;
};

// The tensor type of messages of the raw codec.
at::ScalarType scalar_type(WireDtype dtype);

}  // namespace strait::codec
