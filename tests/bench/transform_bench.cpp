// What codec transform takes compared with groups, on values whose energy falls by half every
// sixteenth of the directions: bits and error of a value, and processor time. One thread.
//   transform_bench [WIDTH = 1024] [TOKENS of a message = 1024]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "framework/codec/codecs.h"
#include "kernels/random.h"

namespace {

using namespace strait;
using codec::Direction;

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kSteps = 20;

double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Sizes {
  std::int64_t width = 1024;
  std::int64_t tokens = 1024;
};

std::unique_ptr<codec::ActivationCache> make_cache(const Sizes& sizes, Direction direction) {
  codec::ActivationCacheOptions options;
  options.row_tokens = sizes.tokens / kRows;
  options.width = sizes.width;
  if (direction == Direction::forward) options.memory_bytes = std::uint64_t{1} << 30U;
  options.order = [](store::Step) {
    return std::vector<store::SampleId>{store::SampleId{0}, store::SampleId{1}, store::SampleId{2},
                                        store::SampleId{3}};
  };
  options.last = store::Step{kSteps};
  return std::make_unique<codec::ActivationCache>(std::move(options));
}

// The same rows in each step, which change by a fifth.
at::Tensor values_of(const Sizes& sizes, std::int64_t step) {
  const auto drawn = [&](std::uint64_t key, at::IntArrayRef shape) {
    return at::randn(shape, kernels::keyed_generator(key, at::kCPU));
  };
  static const at::Tensor mixed = std::get<0>(at::linalg_qr(drawn(1, {sizes.width, sizes.width})));
  const at::Tensor decay = at::exp2(-at::arange(sizes.width) * (8.0 / sizes.width));
  const auto correlated = [&](std::uint64_t key) {
    return at::matmul(drawn(key, {kRows, sizes.tokens / kRows, sizes.width}) * decay, mixed);
  };
  return correlated(2) + 0.2 * correlated(static_cast<std::uint64_t>(10 + step));
}

void measure(const std::string& name, Direction direction, int bits, const Sizes& sizes) {
  codec::DirectionSettings settings;
  settings.direction = direction;
  settings.codec.forward_bits = settings.codec.backward_bits = bits;
  settings.has_cache = direction == Direction::forward;
  const codec::CodecOffer& offer = codec::codecs().named(name);
  const bool cached = offer.has_state || settings.has_cache;
  const auto cache = [&] { return cached ? make_cache(sizes, direction) : nullptr; };
  const auto encoder = offer.encoder(settings, cache());
  const auto decoder = offer.decoder(settings, cache());
  std::array<double, 4> last{};  // bits, error, seconds of both ends
  const auto values_of_step = static_cast<double>(sizes.tokens * sizes.width);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    codec::TensorHeader header;
    header.kind = direction == Direction::forward ? codec::Kind::forward : codec::Kind::backward;
    header.step = store::Step{step};
    header.width = sizes.width;
    header.rows.padded_length = sizes.tokens / kRows;
    for (std::int64_t i = 0; i < kRows; ++i) {
      header.rows.rows.push_back({store::SampleId{i}, {header.rows.padded_length}});
    }
    const at::Tensor values = values_of(sizes, step);
    net::Frame frame;
    const double begin = now();
    encoder->encode(header, values, frame);
    const double encoded = now();
    const at::Tensor read = decoder->decode(header, frame).values;
    const double decoded = now();
    const double error = (read - values).norm().item<double>() / values.norm().item<double>();
    last = {8 * static_cast<double>(frame.size()) / values_of_step, 100 * error, encoded - begin,
            decoded - encoded};
  }
  std::printf("%-10s %-9s %d bits: %5.2f bits a value, error %5.2f %%, %5.1f + %5.1f ns a value\n",
              name.c_str(), direction == Direction::forward ? "changes" : "gradients", bits,
              last[0], last[1], 1e9 * last[2] / values_of_step, 1e9 * last[3] / values_of_step);
}

}  // namespace

int main(int argc, char** argv) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  Sizes sizes;
  if (argc > 1) sizes.width = std::atoll(argv[1]);
  if (argc > 2) sizes.tokens = std::atoll(argv[2]);
  for (const int bits : {4, 6}) {
    measure("delta", Direction::forward, bits, sizes);
    measure("transform", Direction::forward, bits, sizes);
    measure("fixed", Direction::backward, bits, sizes);
    measure("transform", Direction::backward, bits, sizes);
  }
  return 0;
}
