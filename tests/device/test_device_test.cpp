// What the test device promises: memory that the host cannot read, late streams, counted waits.
#include "tests/device/test_device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <numeric>
#include <semaphore>
#include <thread>

#include "tests/device/streams.h"
#include "tests/device/waits.h"

namespace strait::test_device {
namespace {

constexpr std::uint64_t kSeeds = 12;

c10::Stream new_stream(int index = 0) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getNewStream(device(index));
}

// What a stage does with a micro-batch: computes, sends over a pinned buffer and a stream of its
// own, gets something back and goes on computing. All waits are events. Returns what arrived.
std::vector<at::Tensor> exchange(std::uint64_t seed, std::int64_t skipped) {
  Streams::all().begin(seed, skipped);
  const c10::Stream copies = new_stream();
  const c10::Stream compute = current_stream(device());
  const auto pinned = at::TensorOptions(at::kFloat).pinned_memory(true);
  const at::Tensor out = at::empty({64}, pinned);
  const at::Tensor in = at::empty({64}, pinned);
  c10::Event computed(c10::DeviceType::PrivateUse1);
  c10::Event copied(c10::DeviceType::PrivateUse1);
  at::Tensor weight = at::arange(64, at::TensorOptions(at::kFloat).device(device()));
  std::vector<at::Tensor> arrived;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor sent = weight.mul(step + 1).sin();
    computed.record(compute);
    computed.block(copies);
    at::Tensor back;
    {
      const c10::StreamGuard guard(copies);
      sent.record_stream(copies);
      out.copy_(sent, /*non_blocking=*/true);
      copied.record(copies);
      copied.synchronize();
      arrived.push_back(out.clone());
      in.copy_(out.cos());
      back = at::empty_like(sent);
      back.copy_(in, true);
      back.record_stream(compute);
      copied.record(copies);
    }
    copied.block(compute);
    weight.add_(back);
    // `in` is written again behind the next step's wait for the same stream.
  }
  arrived.push_back(weight.cpu());
  return arrived;
}

bool all_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  return std::ranges::equal(left, right, [](const auto& a, const auto& b) { return a.equal(b); });
}

std::vector<at::Tensor> exchange_on_the_host() {
  at::Tensor weight = at::arange(64, at::kFloat);
  std::vector<at::Tensor> arrived;
  for (int step = 0; step < 3; ++step) {
    arrived.push_back(weight.mul(step + 1).sin());
    weight.add_(arrived.back().cos());
  }
  arrived.push_back(weight);
  return arrived;
}

TEST(TestDevice, ComputesWhatTheHostComputes) {
  const at::Tensor host = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor ours = host.to(device());
  EXPECT_TRUE(at::equal(at::mm(ours, ours.t()).add(1).cpu(), at::mm(host, host.t()).add(1)));
  EXPECT_TRUE(ours.narrow(1, 1, 2).select(0, 2).is_privateuseone());
  EXPECT_EQ(ours.sum().item<float>(), 66);
  EXPECT_EQ(c10::Device("test:1"), device(1));
}

TEST(TestDeviceDeathTest, EndsAProcessWhoseHostCodeReadsOrWritesItsMemory) {
  const at::Tensor ours = at::ones({4}, at::TensorOptions(at::kFloat).device(device()));
  EXPECT_EQ(ours.sum().item<float>(), 4);
  EXPECT_DEATH(std::printf("%f", static_cast<double>(ours.const_data_ptr<float>()[0])), "");
  EXPECT_DEATH(ours.mutable_data_ptr<float>()[3] = 1, "");
}

TEST(TestDevice, RefusesTensorsOnSeveralDevices) {
  const auto on = [](int index) {
    return at::ones({4}, at::TensorOptions(at::kFloat).device(device(index)));
  };
  EXPECT_THROW(at::add(on(0), on(1)), c10::Error);
  EXPECT_THROW(at::add(on(0), at::ones({4})), c10::Error);
  EXPECT_THROW(on(device_count()), c10::Error);
  EXPECT_EQ(on(0).add(on(1).to(device(0))).sum().item<float>(), 8) << "a copy is how to mix";
  EXPECT_EQ(on(1).add(at::scalar_tensor(2)).sum().item<float>(), 12);
}

TEST(TestDevice, RunsAsTheHostExpectsForEverySeed) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_TRUE(all_equal(exchange(seed, -1), exchange_on_the_host())) << "seed " << seed;
  }
}

TEST(TestDevice, ShowsEveryWaitThatIsLeftOut) {
  exchange(0, -1);
  const std::int64_t waits = Streams::all().event_waits();
  EXPECT_EQ(waits, 3 * 3);
  for (std::int64_t skipped = 0; skipped < waits; ++skipped) {
    std::vector<std::uint64_t> wrong;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      if (!all_equal(exchange(seed, skipped), exchange_on_the_host())) wrong.push_back(seed);
    }
    EXPECT_FALSE(wrong.empty()) << "wait " << skipped << " changed nothing";
  }
}

// As a boundary does: one thread computes, another one waits for each copy and reads it.
TEST(TestDevice, LetsAnotherThreadWaitForCopies) {
  constexpr std::size_t kCopies = 24;
  Streams::all().begin(5);
  const c10::Stream copies = new_stream();
  std::vector<at::Tensor> buffers;
  for (std::size_t i = 0; i < kCopies; ++i) {
    buffers.push_back(at::empty({32}, at::TensorOptions(at::kFloat).pinned_memory(true)));
  }
  std::vector<c10::Event> copied;
  for (std::size_t i = 0; i < kCopies; ++i) copied.emplace_back(c10::DeviceType::PrivateUse1);
  std::counting_semaphore<> issued(0);
  std::vector<float> sums;
  std::thread reader([&] {
    for (std::size_t i = 0; i < kCopies; ++i) {
      issued.acquire();
      copied[i].synchronize();
      const float* const values = buffers[i].const_data_ptr<float>();
      sums.push_back(std::accumulate(values, values + 32, 0.0F));
    }
  });
  at::Tensor weight = at::ones({32}, at::TensorOptions(at::kFloat).device(device()));
  for (std::size_t i = 0; i < kCopies; ++i) {
    const at::Tensor sent = weight.mul(2);
    weight.add_(1);
    c10::Event computed(c10::DeviceType::PrivateUse1);
    computed.record(current_stream(device()));
    computed.block(copies);
    const c10::StreamGuard guard(copies);
    sent.record_stream(copies);
    buffers[i].copy_(sent, true);
    copied[i].record(copies);
    issued.release();
  }
  reader.join();
  for (std::size_t i = 0; i < kCopies; ++i) {
    EXPECT_EQ(sums[i], static_cast<float>(64 * (i + 1))) << i;
  }
}

// A tensor that is freed while another stream still has to read it.
float read_behind_its_end(bool recorded) {
  Streams::all().begin(0);
  const c10::Stream other = new_stream();
  const at::Tensor read = at::empty({1}, at::TensorOptions(at::kFloat).pinned_memory(true));
  c10::Event made(c10::DeviceType::PrivateUse1);
  {
    const at::Tensor value = at::full({1}, 3, at::TensorOptions(at::kFloat).device(device()));
    made.record(current_stream(device()));
    made.block(other);
    const c10::StreamGuard guard(other);
    read.copy_(value, true);
    if (recorded) value.record_stream(other);
  }
  made.synchronize();
  at::zeros({1}, at::TensorOptions(at::kFloat).device(device()));  // takes what is free
  Streams::all().finish(device());
  return read.item<float>();
}

TEST(TestDevice, KeepsMemoryForARecordedStream) {
  EXPECT_EQ(read_behind_its_end(true), 3);
  EXPECT_NE(read_behind_its_end(false), 3);
}

// With two threads of MKL the last rows of some products have other bits on some processors.
TEST(TestDevice, GivesOneResultOnWhateverThread) {
  Streams::all().begin(0);
  for (std::int64_t rows = 2; rows < 16; ++rows) {
    SCOPED_TRACE(rows);
    const at::Tensor left = at::rand({rows, 16}).to(device());
    const at::Tensor right = at::rand({16, 61}).to(device());
    const at::Tensor here = left.mm(right).cpu();
    const at::Tensor issued = left.mm(right);
    at::Tensor there;
    std::thread([&] { there = issued.cpu(); }).join();
    EXPECT_TRUE(at::equal(here, there));
  }
}

}  // namespace

// Not in the unnamed namespace: backtraces know the names of exported functions alone.
[[gnu::noinline]] at::Tensor places_of_ones(const at::Tensor& tensor) {
  return tensor.nonzero().squeeze(1);
}

namespace {

TEST(TestDevice, CountsWaitsAndSaysWhere) {
  const at::Tensor ours = at::ones({4}, at::TensorOptions(at::kFloat).device(device()));
  const at::Tensor pinned = at::empty({4}, at::TensorOptions(at::kFloat).pinned_memory(true));
  CountWaits waits(/*places=*/true);
  at::Tensor sum = ours.add(1).matmul(ours);
  pinned.copy_(ours, true);
  ours.copy_(pinned, true);
  EXPECT_EQ(waits.hidden(), 0);
  sum.item();
  sum.cpu();
  at::ones({4}).to(device());
  places_of_ones(ours);
  EXPECT_EQ(waits.of(Wait::scalar), 1);
  EXPECT_EQ(waits.of(Wait::to_host), 1);
  EXPECT_EQ(waits.of(Wait::from_host), 1);
  EXPECT_EQ(waits.of(Wait::value_shape), 1);
  EXPECT_EQ(waits.hidden(), 4);
  ASSERT_EQ(waits.places().size(), 4U);
  EXPECT_THAT(waits.places()[3], testing::HasSubstr("aten::nonzero"));
  EXPECT_THAT(waits.places()[3], testing::HasSubstr("places_of_ones"));
}

}  // namespace
}  // namespace strait::test_device
