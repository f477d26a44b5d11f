#include "placement/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "placement/evaluation.h"

namespace strait::placement {
namespace {

// Shapes whose best trivial layout is slower than this many times the best of all are left out.
constexpr double kHopeless = 4;
constexpr std::size_t kMostShapes = 16;
// Temperatures, as parts of the cost. A round cools down several times, from less each time.
constexpr double kHot = 0.1;
constexpr double kCold = 1e-4;
constexpr int kCoolings = 6;

// The same numbers on every machine, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(engine_() % count); }
  double unit() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

// The search within a shape.
class ShapeSearch {
 public:
  ShapeSearch(const Problem& problem, const LayerSums& sums, const TrivialLayouts& trivial,
              int stages, int replicas, std::uint64_t seed)
      : evaluation_(problem, sums, stages, replicas),
        random_(seed * 1'000'003 + static_cast<std::uint64_t>(stages * 4'099 + replicas)) {
    for (std::vector<std::size_t> order : trivial.of_shape(stages, replicas)) {
      evaluation_.set_devices(std::move(order));
      keep_if_better();
    }
  }

  const Choice& best() const { return best_; }
  bool fits() const { return best_.cost.seconds != kUnlimited; }
  // Work of a move, relative to others.
  double move_work() const {
    return evaluation_.stages() + 2.0 * evaluation_.replicas() * evaluation_.replicas() + 16;
  }

  // One round.
  void anneal(std::int64_t moves) {
    if (evaluation_.places() < 2) return;
    double hot = kHot;
    for (int i = 0; i < kCoolings; ++i, hot /= 2) cool(moves / kCoolings, hot);
  }

  // Moves single layers between adjacent stages. The cut above knows nothing of lines, nor that
  // replicas differ in speed.
  void improve_cut() {
    for (bool better = true; better;) {
      better = false;
      const std::vector<LayerSpan> cut = best_.layout.cut;
      for (std::size_t stage = 0; stage + 1 < cut.size(); ++stage) {
        for (const int layers : {-1, 1}) {
          std::vector<LayerSpan> moved = best_.layout.cut;
          moved[stage].second += layers;
          moved[stage + 1].first += layers;
          if (moved[stage].first == moved[stage].second ||
              moved[stage + 1].first == moved[stage + 1].second) {
            continue;
          }
          const double before = best_.cost.seconds;
          evaluation_.set_devices(best_devices_, moved);
          keep_if_better();
          better |= best_.cost.seconds < before;
        }
      }
    }
  }

 private:
  // From the best layout so far.
  void cool(std::int64_t moves, double hot) {
    evaluation_.set_devices(best_devices_);
    double guide = evaluation_.guide();
    const double start = guide;
    for (std::int64_t move = 0; move < moves; ++move) {
      const double part = static_cast<double>(move) / static_cast<double>(moves);
      const double temperature = start * hot * std::pow(kCold / hot, part);
      const Evaluation::State before = evaluation_.state();
      swaps_.clear();
      choose_move();
      evaluation_.refresh();
      const double after = evaluation_.guide();
      if (after <= guide || random_.unit() < std::exp((guide - after) / temperature)) {
        guide = after;
        keep_if_better();
        continue;
      }
      undo(before);
    }
  }

  void keep_if_better() {
    const Cost cost = evaluation_.cost();
    if (cost.seconds >= best_.cost.seconds) return;
    best_ = {evaluation_.layout(), cost};
    best_devices_ = evaluation_.devices();
  }

  void swap(std::size_t one, std::size_t other) {
    evaluation_.swap(one, other);
    swaps_.emplace_back(one, other);
  }

  void undo(const Evaluation::State& before) {
    for (std::size_t i = swaps_.size(); i-- > 0;) {
      evaluation_.swap(swaps_[i].first, swaps_[i].second);
    }
    evaluation_.restore(before);
  }

  void swap_stages(int one, int other) {
    for (int replica = 0; replica < evaluation_.replicas(); ++replica) {
      swap(evaluation_.place(replica, one), evaluation_.place(replica, other));
    }
  }

  void choose_move() {
    const auto stages = static_cast<std::size_t>(evaluation_.stages());
    const auto replicas = static_cast<std::size_t>(evaluation_.replicas());
    const std::size_t kind = random_.below(20);
    if (kind < 1 && stages > 1) {
      swap_stages(static_cast<int>(random_.below(stages)), static_cast<int>(random_.below(stages)));
    } else if (kind < 3 && stages > 2) {
      auto first = static_cast<int>(random_.below(stages));
      auto last = static_cast<int>(random_.below(stages));
      if (kind == 1) {  // moves one stage to the place of another
        const int step = first < last ? 1 : -1;
        for (; first != last; first += step) swap_stages(first, first + step);
      } else {  // turns some stages around
        if (first > last) std::swap(first, last);
        for (; first < last; ++first, --last) swap_stages(first, last);
      }
    } else if (kind < 6 && replicas > 1 && stages > 1) {
      const auto one = static_cast<int>(random_.below(replicas));
      const auto other = static_cast<int>(random_.below(replicas));
      if (one == other) return;
      for (auto stage = static_cast<int>(random_.below(stages)); stage < evaluation_.stages();
           ++stage) {
        swap(evaluation_.place(one, stage), evaluation_.place(other, stage));
      }
    } else {
      const std::size_t one = random_.below(evaluation_.used());
      const std::size_t other = random_.below(evaluation_.places());
      if (one != other) swap(one, other);
    }
  }

  Evaluation evaluation_;
  Random random_;
  Choice best_;
  std::vector<std::size_t> best_devices_;
  std::vector<std::pair<std::size_t, std::size_t>> swaps_;  // of the move that is tried
};

double seconds(const std::unique_ptr<ShapeSearch>& shape) { return shape->best().cost.seconds; }

// All shapes that the problem allows, best trivial layout first, without the hopeless ones.
std::vector<std::unique_ptr<ShapeSearch>> shapes_of(const Problem& problem, const LayerSums& sums,
                                                    std::uint64_t seed) {
  std::vector<std::unique_ptr<ShapeSearch>> shapes;
  const TrivialLayouts trivial(problem);
  const auto devices = static_cast<int>(problem.devices.size());
  for (int stages = 1; stages <= std::min(devices, sums.layers()); ++stages) {
    if (problem.stages && *problem.stages != stages) continue;
    for (int replicas = 1; stages * replicas <= devices; ++replicas) {
      if (problem.replicas && *problem.replicas != replicas) continue;
      if (problem.micro_batches % replicas != 0) continue;
      auto shape = std::make_unique<ShapeSearch>(problem, sums, trivial, stages, replicas, seed);
      if (shape->fits()) shapes.push_back(std::move(shape));
    }
  }
  std::ranges::stable_sort(shapes, {}, seconds);
  while (shapes.size() > 1 && (shapes.size() > kMostShapes ||
                               seconds(shapes.back()) > kHopeless * seconds(shapes.front()))) {
    shapes.pop_back();
  }
  return shapes;
}

// Calls `work` for each of the first `count` indices, on several threads.
template <typename Work>
void for_each(std::size_t count, unsigned threads, const Work& work) {
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t at = next++; at < count; at = next++) work(at);
  };
  const std::size_t wanted = threads == 0 ? std::thread::hardware_concurrency() : threads;
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min(wanted, count); ++i) others.emplace_back(run);
  run();
}

}  // namespace

std::vector<Choice> search(const Problem& problem, const SearchOptions& options) {
  const LayerSums sums(problem);
  std::vector<std::unique_ptr<ShapeSearch>> shapes = shapes_of(problem, sums, options.seed);
  int rounds = 1;
  while ((std::size_t{1} << static_cast<unsigned>(rounds)) < 2 * shapes.size()) ++rounds;
  for (std::size_t kept = shapes.size(); kept > 0; kept /= 2) {
    const double share = static_cast<double>(options.moves) / rounds / static_cast<double>(kept);
    for_each(kept, options.threads, [&](std::size_t at) {
      // Those with costly moves make fewer, so that a round takes each the same time.
      const double moves = share * std::min(1.0, 200 / shapes[at]->move_work());
      shapes[at]->anneal(std::llround(moves));
    });
    std::ranges::stable_sort(shapes, {}, seconds);
  }
  for (const auto& shape : shapes) shape->improve_cut();
  std::ranges::stable_sort(shapes, {}, seconds);
  std::vector<Choice> choices;
  choices.reserve(shapes.size());
  for (const auto& shape : shapes) choices.push_back(shape->best());
  return choices;
}

}  // namespace strait::placement
