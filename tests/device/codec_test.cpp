// Codecs on a device: the CUDA kernels, in the emulation of tests/gpu, on streams of the test
// device. What they send and what they receive is the CPU's, bit for bit.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/gpu_rows.h"
#include "stages/boundary_end.h"
#include "tests/device/streams.h"
#include "tests/device/test_device.h"
#include "tests/device/waits.h"
#include "tests/framework/codec/two_ends.h"
#include "tests/memory_links.h"

namespace strait::codec {
namespace {

using test_device::CountWaits;
using test_device::Streams;
using test_device::Wait;

constexpr std::int64_t kSamples = 6;
constexpr std::int64_t kRowsOfMessage = 3;
constexpr std::int64_t kSteps = 4;

class DeviceCodec : public testing::Test {
 protected:
  void SetUp() override {
    const bool emulated = kernels::gpu_kernels_run_on({at::kPrivateUse1, 0});
    if (!emulated) GTEST_SKIP() << "this build has the kernels of CUDA";
  }
};

// What one boundary does in one direction.
struct CodecCase {
  SampleEncoderOptions options;
  std::optional<ActivationCacheOptions> cache;
  at::ScalarType type = at::kFloat;
  std::int64_t tokens = 4;
  std::int64_t width = 64;
};

template <class T>
T one_of(std::mt19937_64& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

CodecCase random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  CodecCase one;
  one.type = one_of<at::ScalarType>(random, {at::kFloat, at::kBFloat16, at::kHalf});
  one.tokens = 1 + static_cast<std::int64_t>(random() % 6);
  one.width = 1 + static_cast<std::int64_t>(random() % 300);
  const bool delta = random() % 2 == 0;
  one.options.choice = {delta ? Choice::Encoding::delta : Choice::Encoding::fixed,
                        2 + static_cast<int>(random() % 7), 2 + static_cast<int>(random() % 7)};
  one.options.group = one_of<int>(random, {32, 64, 128});
  one.options.key = seed;
  if (!delta) return one;
  ActivationCacheOptions cache;
  cache.row_tokens = one.tokens;
  cache.width = one.width;
  const auto slot =
      static_cast<std::uint64_t>((kernels::entry_bytes(one.tokens, one.width) + 63) / 64 * 64);
  cache.memory_bytes = slot * one_of<std::uint64_t>(random, {4, kSamples});
  cache.order = shuffled_epochs(kSamples, kRowsOfMessage, seed);
  cache.last = store::Step{100};
  one.cache = cache;
  return one;
}

// One end each on the CPU and on the device, fed the same.
struct BothEnds {
  explicit BothEnds(const CodecCase& one) {
    const auto cache = [&](bool pinned) {
      if (!one.cache) return std::unique_ptr<ActivationCache>{};
      ActivationCacheOptions options = *one.cache;
      options.pinned = pinned;
      return std::make_unique<ActivationCache>(options);
    };
    SampleEncoderOptions options = one.options;
    host_encoder = std::make_unique<SampleEncoder>(options, cache(false));
    options.device = test_device::device();
    device_encoder = std::make_unique<SampleEncoder>(options, cache(true));
    host_decoder = std::make_unique<SampleDecoder>(one.type, cache(false));
    device_decoder = std::make_unique<SampleDecoder>(one.type, cache(true), test_device::device());
  }

  std::unique_ptr<SampleEncoder> host_encoder;
  std::unique_ptr<SampleEncoder> device_encoder;
  std::unique_ptr<SampleDecoder> host_decoder;
  std::unique_ptr<SampleDecoder> device_decoder;
};

TensorHeader message(const CodecCase& one, std::int64_t step, std::mt19937_64& random) {
  TensorHeader header;
  header.step = store::Step{step};
  header.width = one.width;
  header.rows.padded_length = one.tokens;
  for (const store::SampleId sample :
       shuffled_epochs(kSamples, kRowsOfMessage, one.options.key)(header.step)) {
    // The same length at every use.
    const std::int64_t length = std::min(one.tokens, number(sample) % (one.tokens + 1));
    header.rows.rows.push_back(Row{sample, {length}});
  }
  if (random() % 8 == 0) header.rows.rows.pop_back();
  return header;
}

net::Frame encoded(SampleEncoder& encoder, const TensorHeader& header, const at::Tensor& values) {
  net::Frame frame;
  write_header(header, frame);
  encoder.encode(header, values, frame);
  return frame;
}

// Where a codec's thread works: beside the stream that computes.
c10::Stream side_stream() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
      .getStreamFromGlobalPool(test_device::device());
}

// Values that the device computes some time.
at::Tensor computed_there(const at::Tensor& values) {
  return values.to(test_device::device()).mul(1);
}

at::Tensor tensor_of(const CodecCase& one, const TensorHeader& header, std::uint64_t seed) {
  at::Tensor values = random_values({header.rows.size(), one.tokens, one.width}, seed).to(one.type);
  if (seed % 5 == 0) values.view(-1)[0] = std::numeric_limits<float>::infinity();
  return values;
}

// Both encode and decode the same messages. Returns how many were decoded on the device.
int compare(const CodecCase& one, std::uint64_t seed, BothEnds& ends) {
  std::mt19937_64 random(seed);
  Streams::all().begin(seed % 4);
  const c10::Stream beside = side_stream();
  int on_device = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const TensorHeader header = message(one, step, random);
    const at::Tensor values = tensor_of(one, header, seed + static_cast<std::uint64_t>(step));
    const at::Tensor there = computed_there(values);
    c10::Event computed(c10::DeviceType::PrivateUse1);
    computed.record(test_device::current_stream(test_device::device()));
    Decoded decoded;
    net::Frame sent;
    {
      const c10::StreamGuard guard(beside);
      computed.block(beside);
      sent = encoded(*ends.device_encoder, header, there);
      const ReadTensor read = read_header(sent);
      decoded = ends.device_decoder->decode(read.header, read.payload);
      on_device += decoded.values.is_cpu() ? 0 : 1;
      decoded.values = decoded.values.cpu();
    }
    const net::Frame expected = encoded(*ends.host_encoder, header, values);
    EXPECT_TRUE(sent == expected) << "step " << step;
    const ReadTensor read = read_header(expected);
    const Decoded plain = ends.host_decoder->decode(read.header, read.payload);
    EXPECT_TRUE(at::equal(decoded.values.nan_to_num(7), plain.values.nan_to_num(7)))
        << "step " << step;
    EXPECT_EQ(decoded.missing, plain.missing);
  }
  const Traffic ours = ends.device_encoder->traffic();
  const Traffic theirs = ends.host_encoder->traffic();
  EXPECT_EQ(ours.hits, theirs.hits);
  EXPECT_EQ(ours.cache_misses, theirs.cache_misses);
  EXPECT_EQ(ours.refused_rows, theirs.refused_rows);
  EXPECT_NEAR(ours.value_squares, theirs.value_squares, 1e-3 * theirs.value_squares);
  EXPECT_NEAR(ours.error_squares, theirs.error_squares, 1e-3 * theirs.error_squares);
  return on_device;
}

TEST_F(DeviceCodec, SendsTheBytesAndReceivesTheValuesOfTheCpu) {
  constexpr std::uint64_t kCases = 40;
  std::uint64_t hits = 0;
  for (std::uint64_t seed = 0; seed < kCases && !HasFailure(); ++seed) {
    const CodecCase one = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    BothEnds ends(one);
    const CountWaits waits;
    EXPECT_EQ(compare(one, seed, ends), kSteps);
    // The test's own, of the values that it compares.
    EXPECT_EQ(waits.of(Wait::to_host), kSteps);
    hits += ends.device_encoder->traffic().hits;
  }
  EXPECT_GT(hits, 50U);
}

// Three uses of samples: what is read or written too early is wrong, whatever the seed of the
// streams lets run ahead.
TEST_F(DeviceCodec, WaitsAreAllNeeded) {
  CodecCase one;
  one.options.choice = {Choice::Encoding::delta, 4, 8};
  one.cache.emplace();
  one.cache->row_tokens = one.tokens;
  one.cache->width = one.width;
  one.cache->memory_bytes = 1 << 20;
  one.cache->order = shuffled_epochs(2, 2, 1);
  one.cache->last = store::Step{100};
  std::vector<at::Tensor> inputs;
  for (std::uint64_t step = 0; step < 3; ++step) {
    inputs.push_back(random_values({2, one.tokens, one.width}, step).to(test_device::device()));
  }
  const auto is_right = [&] {
    BothEnds ends(one);
    const c10::Stream sending = side_stream();
    const c10::Stream receiving = side_stream();
    std::vector<Decoded> decoded;
    std::vector<at::Tensor> right;
    for (std::size_t step = 0; step < inputs.size(); ++step) {
      const TensorHeader header =
          full_rows(store::Step{static_cast<std::int64_t>(step)}, 0, one.tokens, one.width, {0, 1});
      const net::Frame expected = encoded(*ends.host_encoder, header, inputs[step].cpu());
      const ReadTensor plain = read_header(expected);
      right.push_back(ends.host_decoder->decode(plain.header, plain.payload).values.clone());
      const c10::StreamGuard above(sending);
      const net::Frame sent = encoded(*ends.device_encoder, header, inputs[step]);
      if (sent != expected) return false;
      const c10::StreamGuard below(receiving);
      decoded.push_back(ends.device_decoder->decode(plain.header, plain.payload));
      if (!decoded.back().missing.empty()) return false;
    }
    const c10::StreamGuard below(receiving);
    for (std::size_t step = 0; step < right.size(); ++step) {
      if (!at::equal(decoded[step].values.cpu(), right[step])) return false;
    }
    return true;
  };
  Streams::all().begin(0);
  ASSERT_TRUE(is_right());
  // Of three messages at both ends; the last one is the decoder's when it ends, after all is done.
  const std::int64_t waits = Streams::all().event_waits();
  ASSERT_EQ(waits, 6);
  for (std::int64_t skipped = 0; skipped < waits - 1; ++skipped) {
    Streams::all().begin(0, skipped);
    EXPECT_FALSE(is_right()) << "without wait " << skipped;
  }
}

// Entries beyond the memory are on disk, which kernels do not reach; so are rows in bfloat16.
TEST_F(DeviceCodec, LeavesToTheCpuWhatKernelsDoNotDo) {
  for (const bool disk : {true, false}) {
    SCOPED_TRACE(disk ? "entries on disk" : "rows in bfloat16");
    std::uint64_t seed = 0;
    while (!random_case(seed).cache) ++seed;
    CodecCase one = random_case(seed);
    if (disk) {
      one.cache->disk_bytes = one.cache->memory_bytes;
      one.cache->memory_bytes /= 2;
      one.cache->disk_file = std::filesystem::path(testing::TempDir()) / "entries";
    } else {
      one.options.choice.first_bits = kWholeBits;
    }
    BothEnds ends(one);
    const int on_device = compare(one, seed, ends);
    EXPECT_LT(on_device, kSteps);
    EXPECT_GT(ends.device_encoder->traffic().hits, 0U);
  }
}

TEST_F(DeviceCodec, SendsSampleTwiceInOneMessageAsTheCpuDoes) {
  std::uint64_t seed = 0;
  while (!random_case(seed).cache) ++seed;
  const CodecCase one = random_case(seed);
  BothEnds ends(one);
  // The second time both rows are changes, the second row's since the first one's.
  for (std::int64_t step = 0; step < 2; ++step) {
    const TensorHeader header = full_rows(store::Step{step}, 0, one.tokens, one.width, {1, 1});
    const at::Tensor values =
        random_values({2, one.tokens, one.width}, static_cast<std::uint64_t>(step)).to(one.type);
    const net::Frame sent = encoded(*ends.device_encoder, header, values.to(test_device::device()));
    EXPECT_TRUE(sent == encoded(*ends.host_encoder, header, values)) << "step " << step;
    const ReadTensor read = read_header(sent);
    const Decoded ours = ends.device_decoder->decode(read.header, read.payload);
    EXPECT_TRUE(ours.missing.empty());
    EXPECT_TRUE(
        at::equal(ours.values.cpu(), ends.host_decoder->decode(read.header, read.payload).values));
  }
}

TEST_F(DeviceCodec, TakesRowsThatAreSentAgain) {
  std::uint64_t seed = 0;
  while (!random_case(seed).cache) ++seed;
  const CodecCase one = random_case(seed);
  for (std::uint64_t stream_seed = 0; stream_seed < 3; ++stream_seed) {
    Streams::all().begin(stream_seed);
    BothEnds ends(one);
    for (std::int64_t step = 0; step < 3; ++step) {
      const TensorHeader header = full_rows(store::Step{step}, 0, one.tokens, one.width, {1, 2});
      const at::Tensor values =
          random_values({2, one.tokens, one.width}, static_cast<std::uint64_t>(step)).to(one.type);
      const net::Frame sent = encoded(*ends.device_encoder, header, computed_there(values));
      const net::Frame expected = encoded(*ends.host_encoder, header, values);
      ASSERT_TRUE(sent == expected);
      const ReadTensor read = read_header(sent);
      const at::Tensor right = ends.host_decoder->decode(read.header, read.payload).values;
      if (step == 1) {
        at::Tensor(ends.device_decoder->decode(read.header, read.payload).values).cpu();
        continue;
      }
      if (step == 2) {
        ASSERT_TRUE(flip_bit(*ends.device_decoder->cache(), 2, 17));
      }
      const Decoded decoded = ends.device_decoder->decode(read.header, read.payload);
      if (step == 2) {
        ASSERT_EQ(decoded.missing, std::vector<std::int64_t>{1});
        TensorHeader again = header;
        again.kind = Kind::whole;
        again.rows.rows.erase(again.rows.rows.begin());
        net::Frame whole;
        write_header(again, whole);
        ends.device_encoder->encode_whole(again, whole);
        const ReadTensor resent = read_header(whole);
        ends.device_decoder->complete(resent.header, resent.payload, decoded.missing,
                                      decoded.values);
      }
      EXPECT_TRUE(at::equal(decoded.values.cpu(), right)) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace strait::codec

namespace strait::stages {
namespace {

using test_device::Streams;

constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kWidth = 96;
constexpr std::int32_t kMicroBatches = 3;
constexpr std::int64_t kSteps = 2;

// What arrived, in its order, and rows that were sent again.
struct Received {
  std::vector<at::Tensor> tensors;
  std::uint64_t resends = 0;

  bool operator==(const Received& other) const {
    return resends == other.resends &&
           std::ranges::equal(tensors, other.tensors, [](const auto& left, const auto& right) {
             return at::equal(left, right);
           });
  }
};

// Both ends of a boundary. All activations of some steps go down, then all gradients up: nothing
// but a codec's own waits comes between its messages.
class TwoStages {
 public:
  TwoStages(at::Device device, const std::string& forward) : device_(device) {
    for (std::int64_t i = 0; i < kSteps * kMicroBatches; ++i) {
      values_.push_back(
          codec::random_values({2, kTokens, kWidth}, static_cast<std::uint64_t>(i)).to(device));
    }
    BoundaryOptions options;
    options.codec.forward = forward;
    options.codec.backward = "fixed";
    options.cache.memory_bytes = 1 << 20;
    BoundarySetting setting;
    setting.limits = {2, kTokens, kWidth};
    setting.device = device;
    setting.last = store::Step{100};
    setting.order = [](store::Step) {
      std::vector<store::SampleId> samples;
      for (int i = 0; i < 2 * kMicroBatches; ++i) samples.push_back(store::SampleId{i});
      return samples;
    };
    auto [first, second] = memory_links({0, 0}, {1, 0}, "boundary 0>1");
    upper_ = std::make_unique<BoundaryEnd>(std::move(first), make_codecs(options, setting), waits_,
                                           "stage 1", device);
    setting.side = BoundarySide::receiver;
    lower_ = std::make_unique<BoundaryEnd>(std::move(second), make_codecs(options, setting), waits_,
                                           "stage 0", device);
  }

  Received run() {
    pass(*upper_, *lower_, codec::Kind::forward);
    pass(*lower_, *upper_, codec::Kind::backward);
    received_.resends = lower_->received().resends + upper_->received().resends;
    for (at::Tensor& tensor : received_.tensors) tensor = tensor.cpu();
    return received_;
  }

 private:
  void pass(BoundaryEnd& from, BoundaryEnd& to, codec::Kind kind) {
    for_all([&](std::int64_t step, std::int32_t m) {
      codec::TensorHeader header =
          codec::full_rows(store::Step{step}, m, kTokens, kWidth, {2 * m, 2 * m + 1});
      header.kind = kind;
      header.rows.rows[0].documents = {1, 1};
      from.send(header, values_[static_cast<std::size_t>(step * kMicroBatches + m)].mul(1));
    });
    for_all([&](std::int64_t step, std::int32_t m) {
      // Read by compute, later.
      received_.tensors.push_back(
          to.take(kind, {store::Step{step}, true}, MicroBatch{m}).values.mul(1));
    });
  }

  template <class F>
  static void for_all(F f) {
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int32_t m = 0; m < kMicroBatches; ++m) f(step, m);
    }
  }

  at::Device device_;
  std::vector<at::Tensor> values_;
  Received received_;
  WaitClock waits_;
  std::unique_ptr<BoundaryEnd> upper_;
  std::unique_ptr<BoundaryEnd> lower_;
};

Received received_on(at::Device device, const std::string& forward) {
  return TwoStages(device, forward).run();
}

TEST(BoundaryOnTestDevice, CarriesTheBitsOfTheCpu) {
  for (const char* forward : {"fixed", "delta"}) {
    const Received expected = received_on(at::kCPU, forward);
    ASSERT_EQ(expected.tensors.size(), 2 * kSteps * kMicroBatches);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Streams::all().begin(seed);
      EXPECT_TRUE(received_on(test_device::device(), forward) == expected) << "seed " << seed;
    }
  }
}

// What a codec takes and makes on its streams, beside compute.
TEST(BoundaryOnTestDevice, NeedsTheWaitsForWhatIsLentAndMade) {
  const at::Tensor three = at::full({4}, 3).to(test_device::device());
  const auto crossed = [&] {
    Transfer transfer(test_device::device());
    const Copied lent = transfer.lend(three.mul(2));
    at::Tensor sent;
    {
      const auto beside = transfer.sending();
      sent = Transfer::wait(lent).add(1).cpu();
    }
    Copied made;
    {
      const auto beside = transfer.receiving();
      made = transfer.to_device(three.mul(5));
    }
    return sent.add(transfer.arrive(made).mul(1).cpu());
  };
  Streams::all().begin(0);
  EXPECT_TRUE(at::equal(crossed(), at::full({4}, 22)));
  ASSERT_EQ(Streams::all().event_waits(), 2);
  for (const std::int64_t skipped : {0, 1}) {
    Streams::all().begin(0, skipped);
    EXPECT_FALSE(at::equal(crossed(), at::full({4}, 22))) << "without wait " << skipped;
  }
}

}  // namespace
}  // namespace strait::stages
