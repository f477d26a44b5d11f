// Processor time of sync methods per step, without links: the engine's thread (encode, reduce,
// decode) and the trainer's (apply), in units of the time to copy the stage's weights once. The
// coding_cost() of each method in framework/sync has these figures.
//   coding_bench [VALUES in millions = 4] [STEPS = 40] [MEMBERS = 2]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

#include "framework/sync/methods.h"
#include "tests/framework/sync/direct_round.h"
#include "tests/framework/sync/wrapped_method.h"

namespace {

using namespace strait::sync;

// Processor time of this thread, so that a busy machine changes little.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Seconds {
  double engine = 0;
  double trainer = 0;
};

class Stopwatch {
 public:
  explicit Stopwatch(double& to) : to_(to), begun_(now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { to_ += now() - begun_; }

 private:
  double& to_;
  double begun_;
};

// Measures the time of a method on each thread.
class Timed : public WrappedMethod {
 public:
  Timed(std::unique_ptr<SyncMethod> method, Seconds& seconds)
      : WrappedMethod(std::move(method)), seconds_(seconds) {}

  void encode(const Round& round, const Part& part, const Slots& slots,
              strait::net::Frame& out) override {
    const Stopwatch watch(seconds_.engine);
    WrappedMethod::encode(round, part, slots, out);
  }
  void reduce(const Round& round, const Part& part, Contributions contributions, const Slots& slots,
              strait::net::Frame& out) override {
    const Stopwatch watch(seconds_.engine);
    WrappedMethod::reduce(round, part, contributions, slots, out);
  }
  void decode(const Round& round, const Part& part, const Slots& slots) override {
    const Stopwatch watch(seconds_.engine);
    WrappedMethod::decode(round, part, slots);
  }
  void apply(const Round& round, Slots& slots) override {
    const Stopwatch watch(seconds_.trainer);
    WrappedMethod::apply(round, slots);
  }

 private:
  Seconds& seconds_;
};

struct Sizes {
  std::int64_t values = 4 << 20;
  std::int64_t steps = 40;
  std::size_t members = 2;
};

double seconds_of_a_copy(std::int64_t values) {
  const std::vector<float> from(static_cast<std::size_t>(values), 1.0F);
  std::vector<float> to(from.size());
  std::vector<double> all;
  for (int i = 0; i < 9; ++i) {
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    }
    all.push_back(seconds + static_cast<double>(to[1]) * 0);
  }
  std::ranges::sort(all);
  return all[all.size() / 2];
}

void randomize(std::vector<float>& values, std::mt19937& random) {
  for (float& value : values) {
    const auto bits = static_cast<std::int32_t>(random());
    value = static_cast<float>(bits) * 1e-13F;
  }
}

// Of one replica a step: the mean of all.
Seconds seconds_of(const SyncSettings& settings, const Sizes& sizes) {
  constexpr std::int64_t kRow = 1024;
  const Layout layout({{.name = "w", .shape = {sizes.values / kRow, kRow}}});
  Seconds seconds;
  DirectRound stage(layout, sizes.members,
                    [&] { return std::make_unique<Timed>(make_method(settings), seconds); });
  stage.start();
  std::mt19937 random(1);
  const std::int64_t first = sizes.steps / 4;  // methods warm up
  for (std::int64_t step = 0; step < sizes.steps; ++step) {
    const auto at = static_cast<strait::store::Step>(step);
    if (step == first) seconds = {};
    for (std::size_t i = 0; i < stage.size(); ++i) {
      randomize(stage.replica(i).gradient, random);
      randomize(stage.replica(i).weights, random);
    }
    stage.pass({at, Hook::gradient});
    stage.pass({at, Hook::clipped});
    stage.before_update(at);
    stage.pass({at, Hook::update});
  }
  const double all =
      static_cast<double>((sizes.steps - first)) * static_cast<double>(sizes.members);
  return {seconds.engine / all, seconds.trainer / all};
}

void row(const std::string& name, const SyncSettings& settings, const Sizes& sizes) {
  const double copy = seconds_of_a_copy(sizes.values);
  const Seconds seconds = seconds_of(settings, sizes);
  std::printf("%-24s %8.2f %8.2f\n", name.c_str(), seconds.engine / copy, seconds.trainer / copy);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  if (argc > 1) sizes.values = std::atol(argv[1]) << 20;
  if (argc > 2) sizes.steps = std::atol(argv[2]);
  if (argc > 3) sizes.members = static_cast<std::size_t>(std::atol(argv[3]));
  std::printf("copies of the weights a step, %zu members\n%-24s %8s %8s\n", sizes.members, "",
              "engine", "trainer");
  for (const std::string& method : method_names()) {
    SyncSettings settings;
    settings.method = method;
    settings.steps = sizes.steps;
    settings.every = 8;  // so that some steps hold all there is
    if (method != "cocktail") {
      row(method, settings, sizes);
      continue;
    }
    std::vector<Strength> all = {{settings.random, settings.top, settings.bits}};
    const std::span<const Strength> chosen = methods().named("cocktail").strengths(1);
    all.insert(all.end(), chosen.begin(), chosen.end());
    for (const Strength& strength : all) {
      settings.random = strength.random;
      settings.top = strength.top;
      settings.bits = strength.bits;
      row("cocktail " + strength.text(), settings, sizes);
    }
  }
  return 0;
}
