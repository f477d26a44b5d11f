#include "launcher/planner/layer_times.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <tuple>

#include "models/initialize.h"

namespace strait::planner {
namespace {

using Clock = std::chrono::steady_clock;

// A plan waits for this. Tiny layers would make more rounds than a mean needs.
constexpr auto kMeasureFor = std::chrono::milliseconds(1000);
constexpr int kMaxRounds = 2000;
constexpr std::int64_t kBusyTokens = 512;  // see plan::kPassTokensOfCpu

// A step takes the sum of its rounds, so that their mean counts and not their median: with a quota
// of processor time, as of containers, few rounds bear all of the waiting. The longest one is left
// out: one interruption in a second is not in every step.
double mean_of(std::vector<double> seconds) {
  if (seconds.empty()) return 0;
  if (seconds.size() > 2) seconds.erase(std::ranges::max_element(seconds));
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

LayerTime time_rounds(at::Device device, const std::function<at::Tensor()>& forward) {
  std::vector<double> forwards;
  std::vector<double> backwards;
  at::Tensor gradient;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kMaxRounds; ++i) {
    if (i > 1 && Clock::now() - begin > kMeasureFor) break;
    at::Tensor output;
    const double ahead = timed(device, [&] { output = forward(); });
    if (!gradient.defined()) gradient = at::ones_like(output);
    double back = 0;
    if (output.requires_grad()) {
      back = timed(device, [&] { torch::autograd::backward({output}, {gradient}); });
    }
    if (i == 0) continue;  // warm-up: pages are mapped and code is loaded
    forwards.push_back(ahead);
    backwards.push_back(back);
  }
  return {mean_of(std::move(forwards)), mean_of(std::move(backwards))};
}

// The loss computes the gradients of the projection in its forward, as in a run.
LayerTime time_head(models::Head& head, const at::Tensor& input, const models::Pass& pass,
                    bool trained) {
  const kernels::Projection& projection = head.projection();
  const at::Tensor targets = at::zeros({input.size(0) * input.size(1)}, at::kLong);
  kernels::Projection gradient;
  if (trained) gradient.weight = at::zeros_like(projection.weight, at::kFloat);
  return time_rounds(input.device(), [&] {
    at::Tensor hidden = head.forward(input, pass);
    const at::NoGradGuard no_graph;
    kernels::cross_entropy(projection, hidden.flatten(0, 1), targets, 1, gradient);
    return hidden;
  });
}

// Restores the number of threads of this process.
class Threads {
 public:
  explicit Threads(std::int64_t count) { at::set_num_threads(static_cast<int>(count)); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

}  // namespace

double timed(at::Device device, const std::function<void()>& call) {
  const Clock::time_point start = Clock::now();
  call();
  // On an accelerator a call only queues its work.
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LayerTime time_layer(models::Layer& layer, const at::Tensor& input, const models::Pass& pass) {
  return time_rounds(input.device(), [&] { return layer.forward(input, pass); });
}

std::vector<LayerTime> profile_layers(const models::ModelConfig& config,
                                      const models::ModelDescription& description,
                                      const ProfileQuestion& question) {
  const Threads threads(question.threads);
  const std::int64_t busy = std::max<std::int64_t>(1, kBusyTokens / question.row);
  const std::int64_t count = std::min(question.rows, busy);
  const std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(count),
                                                    {question.row});
  const int last = static_cast<int>(description.layers.size()) - 1;
  const auto time_of = [&](int index) {
    const models::LayerCost& cost = description.layers[static_cast<std::size_t>(index)];
    const auto model = models::make_model(config, {index, index}, question.dtype, at::kCPU);
    models::initialize(*model, config, 1);
    models::Pass pass = models::make_pass(rows, question.row);
    pass.training = true;
    models::Layer& layer = model->layer(index);
    if (index == 0) {
      const at::Tensor tokens =
          at::randint(description.vocabulary, {count, question.row}, at::kLong);
      return time_layer(layer, tokens, pass);
    }
    at::Tensor input = at::randn({count, question.row, description.hidden}, question.dtype);
    input.set_requires_grad(cost.backward_factor > 0 && index > description.first_trained_layer());
    const bool projects = description.tied ? description.tied_trained : cost.trained > 0;
    if (index == last) return time_head(*model->head(), input, pass, projects);
    LayerTime time = time_layer(layer, input, pass);
    if (question.recompute && cost.backward_factor > 0) time.backward += time.forward;
    return time;
  };
  using Kind = std::tuple<std::int64_t, std::int64_t, double, double, int>;
  std::map<Kind, LayerTime> known;
  std::vector<LayerTime> times;
  for (int i = 0; i <= last; ++i) {
    const models::LayerCost& cost = description.layers[static_cast<std::size_t>(i)];
    const int place = i == 0 ? 0 : i == last ? 2 : 1;
    const Kind kind(cost.parameters, cost.trained, cost.forward_flops_per_token,
                    cost.backward_factor, place);
    const auto found = known.find(kind);
    times.push_back(found != known.end() ? found->second
                                         : known.emplace(kind, time_of(i)).first->second);
  }
  return times;
}

}  // namespace strait::planner
