#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "framework/codec/codecs.h"
#include "framework/codec/message.h"
#include "launcher/planner/planned_boundary.h"

namespace strait::planner {
namespace {

BoundaryLoad full_rows() {
  BoundaryLoad load;
  load.width = 96;
  load.rows = 4;
  load.tokens_per_row = 128;
  load.documents_per_row = 3;
  return load;
}

// The header of a message of four rows with three documents each.
constexpr double kHeader = 28 + 4 * (12 + 3 * 4);

TEST(BoundaryForecast, RawBytesAreValuesInWireType) {
  codec::CodecSettings codec;
  codec.wire_dtype = codec::WireDtype::bfloat16;
  const BoundaryBytes bytes = boundary_bytes(codec, full_rows());
  EXPECT_EQ(bytes.known_forward, kHeader + 4 * 128 * 96 * 2);
  EXPECT_EQ(bytes.first_forward, bytes.known_forward);
  EXPECT_EQ(bytes.backward, bytes.known_forward);
}

TEST(BoundaryForecast, CountsBytesOfCacheHitsAndMisses) {
  codec::CodecSettings codec;
  codec.forward = "delta";
  codec.forward_bits = 4;
  codec.backward = "fixed";
  codec.backward_bits = 5;
  const BoundaryBytes bytes = boundary_bytes(codec, full_rows());
  // A token of width 96 in groups of 64: top exponent, two scales, bits of 96 values.
  EXPECT_EQ(bytes.known_forward, kHeader + 3 + 4 * 11 + 4 * 128 * (1 + 2 + 4 * 12));
  EXPECT_EQ(bytes.first_forward, kHeader + 3 + 4 * 3 + 4 * 128 * (1 + 2 + 8 * 12));
  EXPECT_EQ(bytes.backward, kHeader + 3 + 4 * 3 + 4 * 128 * (1 + 2 + 5 * 12));
  codec.first_bits = 16;
  EXPECT_EQ(boundary_bytes(codec, full_rows()).first_forward,
            kHeader + 3 + 4 * 3 + 4 * 128 * 96 * 2);
}

// ---- against the encoders

class RandomCase {
 public:
  explicit RandomCase(std::uint64_t seed) : random_(seed) {
    settings.forward = std::array{"raw", "fixed", "delta"}.at(draw(0, 2));
    settings.forward_bits = draw(2, 8);
    settings.first_bits = draw(0, 3) == 0 ? 16 : draw(2, 8);
    settings.backward = std::array{"raw", "fixed", "delta"}.at(draw(0, 2));
    settings.backward_bits = draw(2, 8);
    settings.wire_dtype = static_cast<codec::WireDtype>(draw(0, 2));
    settings.group = std::int64_t{32} << draw(0, 2);
    header.width = draw(1, 300);
    header.rows.padded_length = draw(3, 12);
    const auto rows = draw(1, 5);
    for (std::size_t i = 0; i < rows; ++i) {
      header.rows.rows.push_back({store::SampleId{static_cast<std::int64_t>(i)}, {}});
      std::vector<std::int64_t>& documents = header.rows.rows.back().documents;
      documents.push_back(draw(1, 2));
      if (draw(0, 1) == 1) documents.push_back(1);
    }
  }

  // Both averages are exact: sums of few small numbers over at most five rows.
  BoundaryLoad load() const {
    BoundaryLoad load;
    load.width = header.width;
    load.rows = header.rows.size();
    std::size_t documents = 0;
    for (const codec::Row& row : header.rows.rows) documents += row.documents.size();
    load.tokens_per_row =
        static_cast<double>(header.rows.tokens()) / static_cast<double>(load.rows);
    load.documents_per_row = static_cast<double>(documents) / static_cast<double>(load.rows);
    return load;
  }

  std::unique_ptr<codec::Encoder> encoder(codec::Direction direction) const {
    codec::DirectionSettings end;
    end.codec = settings;
    end.direction = direction;
    const codec::CodecOffer& offer = codec::codecs().named(settings.name(direction));
    std::unique_ptr<codec::ActivationCache> cache;
    if (offer.caching_of(direction) == codec::CodecOffer::Caching::always) {
      codec::ActivationCacheOptions options;
      options.row_tokens = header.rows.padded_length;
      options.width = header.width;
      options.memory_bytes = 1 << 20;
      options.order = [rows = header.rows](store::Step) {
        std::vector<store::SampleId> samples;
        for (const codec::Row& row : rows.rows) samples.push_back(row.sample);
        return samples;
      };
      options.last = store::Step{3};
      cache = std::make_unique<codec::ActivationCache>(std::move(options));
      end.has_cache = true;
    }
    return offer.encoder(end, std::move(cache));
  }

  // Bytes of the message of this step.
  double encoded(codec::Encoder& encoder, std::int64_t step) {
    header.step = store::Step{step};
    net::Frame frame;
    codec::write_header(header, frame);
    encoder.encode(header, at::randn({header.rows.size(), header.rows.padded_length, header.width}),
                   frame);
    return static_cast<double>(frame.size());
  }

  codec::CodecSettings settings;
  codec::TensorHeader header;

 private:
  std::size_t draw(std::size_t least, std::size_t most) {
    return least + random_() % (most - least + 1);
  }
  std::mt19937_64 random_;
};

TEST(BoundaryForecast, EqualsSizeOfEncodedMessages) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RandomCase c(seed);
    const BoundaryBytes forecast = boundary_bytes(c.settings, c.load());
    const auto forward = c.encoder(codec::Direction::forward);
    EXPECT_NEAR(c.encoded(*forward, 0), forecast.first_forward, 1e-6) << "seed " << seed;
    EXPECT_NEAR(c.encoded(*forward, 1), forecast.known_forward, 1e-6) << "seed " << seed;
    const auto backward = c.encoder(codec::Direction::backward);
    EXPECT_NEAR(c.encoded(*backward, 0), forecast.backward, 1e-6) << "seed " << seed;
    if (c.header.width < 32) continue;  // few values are near others by chance
    EXPECT_NEAR(c.encoded(*backward, 1), forecast.backward, 1e-6) << "of others, seed " << seed;
  }
}

}  // namespace
}  // namespace strait::planner
