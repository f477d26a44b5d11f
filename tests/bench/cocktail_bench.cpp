// Processor time of a round of cocktail on one thread, relative to copying the weights once:
// drawing, selecting, quantising and coding the contribution (encode); decoding, averaging and
// coding the part that the replica owns (reduce); decoding results (decode); and applying them
// (apply).
//   cocktail_bench [--benchmark_filter=…]
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <random>

#include "framework/sync/methods.h"
#include "framework/sync/slots.h"
#include "tests/bench/share_reporter.h"

namespace {

using namespace strait::sync;

constexpr std::size_t kMembers = 4;
constexpr std::int64_t kRow = 1024;

SyncSettings settings_of(double random, double top, int bits) {
  SyncSettings settings;
  settings.method = "cocktail";
  settings.random = random;
  settings.top = top;
  settings.bits = bits;
  return settings;
}

using Values = std::vector<float, LineAllocator<float>>;  // as the trainer's

// One replica with a round in progress, whose weights differ from the reference by normal values.
class Replica {
 public:
  Replica(std::int64_t values, const SyncSettings& settings)
      : layout({{"w", {values / kRow, kRow}, false}}),
        weights(static_cast<std::size_t>(values)),
        unused(weights.size()),
        method(make_method(settings)),
        slots(layout, {weights, unused, unused, unused}, method->traits.slots) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal(0, 1e-4F);
    for (float& weight : weights) weight = normal(random);
    round.membership.members = {0, 1, 2, 3};
    round.plan = *method->plan(round.opened, layout, round.membership);
    round.parts = parts_of(round.plan, round.membership);
    round.exchanges.resize(1);
  }

  // Each step draws other coordinates.
  void next() { round.opened.step = static_cast<strait::store::Step>(++step_); }
  void encode() {
    auto& own = round.exchanges[0].own;
    own.assign(round.parts.size(), {});
    for (const Part& part : round.parts) method->encode(round, part, slots, own[part.index]);
  }
  // All members contribute the same.
  void reduce() {
    const auto& own = round.exchanges[0].own[0];
    const std::vector<std::span<const std::byte>> contributions(kMembers, own);
    strait::net::Frame result;
    method->reduce(round, round.parts[0], contributions, slots, result);
  }
  void decode() {
    round.exchanges[0].results = round.exchanges[0].own;
    for (const Part& part : round.parts) method->decode(round, part, slots);
  }
  void apply() { method->apply(round, slots); }

  Layout layout;
  Values weights;
  Values unused;
  std::unique_ptr<SyncMethod> method;
  Slots slots;
  Round round;

 private:
  std::int64_t step_ = 0;
};

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

void copy(benchmark::State& state) {
  const std::vector<float> from(static_cast<std::size_t>(state.range(0)), 1.0F);
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void encode(benchmark::State& state, const SyncSettings& settings) {
  Replica replica(state.range(0), settings);
  for (auto _ : state) {
    replica.next();
    replica.encode();
  }
  count_bytes(state);
  std::size_t bytes = 0;
  for (const auto& frame : replica.round.exchanges[0].own) bytes += frame.size();
  state.counters["bits"] = 8.0 * static_cast<double>(bytes) / static_cast<double>(state.range(0));
}

void reduce(benchmark::State& state, const SyncSettings& settings) {
  Replica replica(state.range(0), settings);
  replica.encode();
  for (auto _ : state) replica.reduce();
  count_bytes(state);
}

void decode(benchmark::State& state, const SyncSettings& settings) {
  Replica replica(state.range(0), settings);
  replica.encode();
  for (auto _ : state) replica.decode();
  count_bytes(state);
}

void apply(benchmark::State& state, const SyncSettings& settings) {
  Replica replica(state.range(0), settings);
  for (auto _ : state) {
    state.PauseTiming();
    replica.next();
    replica.encode();
    replica.decode();
    state.ResumeTiming();
    replica.apply();
  }
  count_bytes(state);
}

void register_all() {
  constexpr std::array<std::int64_t, 2> kValues{1 << 20, 1 << 24};  // 4 and 64 MiB
  const auto add = [&](const std::string& name, auto function, auto... arguments) {
    auto* entry = benchmark::RegisterBenchmark(name.c_str(), function, arguments...);
    for (const std::int64_t values : kValues) entry->Arg(values);
  };
  add("copy", copy);
  const auto add_all = [&](const std::string& name, const SyncSettings& settings) {
    add("encode " + name, encode, settings);
    add("reduce " + name, reduce, settings);
    add("decode " + name, decode, settings);
    add("apply " + name, apply, settings);
  };
  add_all("0.1 0.2 2 bits", settings_of(0.1, 0.2, 2));
  add_all("0.1 0.2 4 bits", settings_of(0.1, 0.2, 4));
  add_all("0.1 0.2 8 bits", settings_of(0.1, 0.2, 8));
  add_all("0.12 1 1 bit", settings_of(0.12, 1, 1));
  add_all("0.5 0.5 4 bits", settings_of(0.5, 0.5, 4));
  add_all("1 0.02 2 bits", settings_of(1, 0.02, 2));
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  return strait::run_benchmarks(argc, argv, "bytes of weights");
}
