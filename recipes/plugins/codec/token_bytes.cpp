#include <ATen/ops/zeros.h>
#include <strait/plugin.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "framework/codec/codecs.h"
#include "framework/codec/message.h"

// A byte for each value, and for each token the size of its largest value in float32. Both ends
// keep nothing, so there is nothing that could differ.
namespace {

using namespace strait::codec;

constexpr float kSteps = 127;

std::size_t token_size(std::int64_t width) {
  return sizeof(float) + static_cast<std::size_t>(width);
}

std::size_t payload_size(const TensorHeader& header) {
  return static_cast<std::size_t>(header.rows.tokens()) * token_size(header.width);
}

void count(const TensorHeader& header, Traffic& traffic) {
  traffic.rows += static_cast<std::uint64_t>(header.rows.size());
  traffic.raw_bytes += header.raw_bytes();
  traffic.payload_bytes += payload_size(header);
}

// A token with a value that is not finite becomes one of NaN, which training notices.
std::byte* encode_token(const float* values, std::int64_t width, std::byte* to) {
  float largest = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    largest = std::isfinite(values[i]) ? std::fmax(largest, std::abs(values[i]))
                                       : std::numeric_limits<float>::infinity();
  }
  const bool finite = std::isfinite(largest);
  const float scale = finite ? largest / kSteps : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(to, &scale, sizeof scale);
  to += sizeof scale;
  for (std::int64_t i = 0; i < width; ++i, ++to) {
    const float step = finite && scale > 0 ? std::nearbyint(values[i] / scale) : 0;
    *to = static_cast<std::byte>(static_cast<std::int8_t>(step));
  }
  return to;
}

const std::byte* decode_token(const std::byte* from, std::int64_t width, float* values) {
  float scale = 0;
  std::memcpy(&scale, from, sizeof scale);
  from += sizeof scale;
  for (std::int64_t i = 0; i < width; ++i, ++from) {
    values[i] = scale * static_cast<float>(static_cast<std::int8_t>(*from));
  }
  return from;
}

class TokenBytesEncoder final : public Encoder {
 public:
  void encode(const TensorHeader& header, const at::Tensor& tensor,
              strait::net::Frame& frame) override {
    const at::Tensor values = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    const float* row = values.const_data_ptr<float>();
    const std::size_t begin = frame.size();
    frame.resize(begin + payload_size(header));
    std::byte* to = frame.data() + begin;
    for (const Row& of : header.rows.rows) {
      for (std::int64_t t = 0; t < of.length(); ++t) {
        to = encode_token(row + t * header.width, header.width, to);
      }
      row += header.rows.padded_length * header.width;
    }
    count(header, traffic_);
  }
  Traffic traffic() const override { return traffic_; }

 private:
  Traffic traffic_;
};

class TokenBytesDecoder final : public Decoder {
 public:
  explicit TokenBytesDecoder(at::ScalarType result) : result_(result) {}

  Decoded decode(const TensorHeader& header, std::span<const std::byte> payload) override {
    // Bytes come from another process: nothing is read before it is known to be there.
    if (payload.size() != payload_size(header)) {
      throw CodecError("a token_bytes payload is not as long as its tokens are many");
    }
    const at::Tensor values =
        at::zeros({header.rows.size(), header.rows.padded_length, header.width}, at::kFloat);
    float* row = values.mutable_data_ptr<float>();
    const std::byte* from = payload.data();
    for (const Row& of : header.rows.rows) {
      for (std::int64_t t = 0; t < of.length(); ++t) {
        from = decode_token(from, header.width, row + t * header.width);
      }
      row += header.rows.padded_length * header.width;
    }
    count(header, traffic_);
    return {values.to(result_), {}};
  }
  Traffic traffic() const override { return traffic_; }

 private:
  at::ScalarType result_;
  Traffic traffic_;
};

std::unique_ptr<Encoder> encoder(const DirectionSettings&, CodecOffer::Cache) {
  return std::make_unique<TokenBytesEncoder>();
}

std::unique_ptr<Decoder> decoder(const DirectionSettings& settings, CodecOffer::Cache) {
  return std::make_unique<TokenBytesDecoder>(settings.result);
}

PayloadBytes payload(const DirectionSettings&, const PayloadLoad& load) {
  const double bytes = load.tokens * static_cast<double>(token_size(load.width));
  return {bytes, bytes};
}

void offer(strait::Extensions& strait) {
  CodecOffer offered;
  offered.name = "token_bytes";
  offered.encoder = encoder;
  offered.decoder = decoder;
  offered.payload = payload;
  strait.codec(offered);
}

}  // namespace

STRAIT_PLUGIN(offer)
