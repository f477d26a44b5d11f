// libFuzzer target: rounds of every sync method between three replicas, one of which sends other
// bytes than it should: the input says which method, and cuts, extends, flips and replaces what
// replica 1 contributes and reduces. A round is applied, or refused in one SyncError.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>

#include "framework/sync/methods.h"
#include "framework/sync/round.h"
#include "framework/sync/sync_error.h"
#include "tests/framework/sync/direct_round.h"
#include "tests/framework/sync/wrapped_method.h"

using namespace strait::sync;
using strait::net::Frame;

namespace {

constexpr std::int64_t kSteps = 4;
constexpr std::size_t kHostile = 1;

void damage(FuzzedDataProvider& input, Frame& frame, std::size_t begin) {
  const std::size_t size = frame.size() - begin;
  switch (input.ConsumeIntegralInRange(0, 4)) {
    case 0:
      frame.resize(begin + input.ConsumeIntegralInRange<std::size_t>(0, size));
      break;
    case 1:
      frame.insert(frame.end(), input.ConsumeIntegralInRange<std::size_t>(1, 64), std::byte{1});
      break;
    case 2: {
      const auto bytes = input.ConsumeBytes<std::uint8_t>(
          input.ConsumeIntegralInRange<std::size_t>(0, 2 * size + 1));
      frame.resize(begin);
      for (const std::uint8_t byte : bytes) frame.push_back(std::byte{byte});
      break;
    }
    case 3:
      for (int i = input.ConsumeIntegralInRange(1, 8); i > 0 && size > 0; --i) {
        frame[begin + input.ConsumeIntegralInRange<std::size_t>(0, size - 1)] ^=
            std::byte{input.ConsumeIntegral<std::uint8_t>()};
      }
      break;
    default:
      break;
  }
}

// A method whose bytes on the wire are damaged.
class HostileMethod : public WrappedMethod {
 public:
  HostileMethod(std::unique_ptr<SyncMethod> method, FuzzedDataProvider& input)
      : WrappedMethod(std::move(method)), input_(input) {}

  void encode(const Round& round, const Part& part, const Slots& slots, Frame& out) override {
    const std::size_t begin = out.size();
    WrappedMethod::encode(round, part, slots, out);
    damage(input_, out, begin);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              Frame& out) override {
    const std::size_t begin = out.size();
    WrappedMethod::reduce(round, part, contributions, slots, out);
    damage(input_, out, begin);
  }

 private:
  FuzzedDataProvider& input_;
};

SyncSettings settings_of(FuzzedDataProvider& input) {
  SyncSettings settings;
  const std::vector<std::string> names = method_names();
  settings.method = names[input.ConsumeIntegralInRange<std::size_t>(0, names.size() - 1)];
  settings.narrow_wire = input.ConsumeBool();
  settings.random = 0.5;
  settings.bits = std::vector{1, 2, 4, 8}[input.ConsumeIntegralInRange<std::size_t>(0, 3)];
  settings.every = 2;
  settings.fragments = 2;
  settings.steps = kSteps;
  return settings;
}

void make_gradients(DirectRound& stage, std::int64_t step) {
  for (std::size_t number = 0; number < stage.size(); ++number) {
    DirectReplica& replica = stage.replica(number);
    for (std::size_t i = 0; i < replica.gradient.size(); ++i) {
      const auto value =
          static_cast<float>((i * 7 + number * 3 + static_cast<std::size_t>(step)) % 13) - 6;
      replica.gradient[i] = value;
      replica.weights[i] -= value / 64;
    }
  }
}

void train(DirectRound& stage) {
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const auto at = static_cast<strait::store::Step>(step);
    make_gradients(stage, step);
    for (const Hook hook : {Hook::gradient, Hook::clipped, Hook::update}) {
      try {
        stage.pass({at, hook});
      } catch (const SyncError& error) {
        if (*error.what() == '\0') std::abort();
        if (stage.in_progress()) stage.drop();
        return;
      }
    }
  }
}

void read_header_twice(std::span<const std::byte> frame) {
  try {
    const RoundMessage header = read_header(frame);
    if (read_header(start_frame(header)) != header) std::abort();
  } catch (const SyncError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_header_twice(std::as_bytes(std::span(data, size)));
  FuzzedDataProvider input(data, size);
  const SyncSettings settings = settings_of(input);
  const Layout layout({{.name = "matrix", .shape = {10, 8}},
                       {.name = "bias", .shape = {17}},
                       {.name = "tied", .shape = {4, 4}, .tied = true}});
  try {
    make_method(settings);
  } catch (const SyncError&) {
    return 0;  // a setting that this method does not have
  }
  std::size_t made = 0;
  DirectRound stage(layout, 3, [&]() -> std::unique_ptr<SyncMethod> {
    auto method = make_method(settings);
    if (made++ != kHostile) return method;
    return std::make_unique<HostileMethod>(std::move(method), input);
  });
  stage.start();
  train(stage);
  return 0;
}
