#include "stages/chunk.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include "models/pass.h"

namespace strait::stages {
namespace {

models::Pass pass_of(const codec::Rows& rows, const Phase& phase, const ChunkOptions& options,
                     MicroBatch micro_batch) {
  std::vector<std::vector<std::int64_t>> documents;
  documents.reserve(rows.rows.size());
  for (const codec::Row& row : rows.rows) documents.push_back(row.documents);
  models::Pass pass = models::make_pass(documents, rows.padded_length);
  pass.seed = options.seed;
  pass.step = static_cast<std::uint64_t>(number(phase.step));
  const std::int32_t among_all_replicas = options.first_micro_batch + number(micro_batch);
  pass.micro_batch = static_cast<std::uint64_t>(among_all_replicas);
  pass.training = phase.training;
  pass.adapters = phase.reference == Phase::Reference::none;
  if (phase.training) pass.noise = options.noise;
  pass.balance_share = 1 / static_cast<double>(options.micro_batches);
  return pass;
}

// For a device, autograd would run the backward on another thread, which does not see this thread's
// queue of weight gradients.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread() { change(false); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;
  ~BackwardOnThisThread() { change(was_); }

 private:
  static void change(bool multithreading) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(multithreading);
  }

  const bool was_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
};

// A leaf that starts a graph: its gradient goes to the layers before it.
at::Tensor leaf_of(const at::Tensor& values) {
  return at::isFloatingType(values.scalar_type()) ? values.detach().requires_grad_() : values;
}

}  // namespace

std::vector<Chunk::Segment> Chunk::segments() const {
  const std::size_t layers = model_.layers().size();
  if (!options_.recompute) {
    const std::size_t frozen = has_first_trained_layer() ? frozen_layers() : 0;
    if (frozen == 0) return {{0, layers}};
    return {{0, frozen}, {frozen, layers - frozen}};
  }
  std::vector<Segment> single;
  for (std::size_t i = 0; i < layers; ++i) single.push_back({i, 1});
  return single;
}

bool Chunk::passes_gradient(const Segment& segment) const {
  return options_.first_trained_layer < model_.range().first + static_cast<int>(segment.first);
}

bool Chunk::has_backward(const Segment& segment) const {
  const std::size_t end = segment.first + segment.count;
  return options_.first_trained_layer < model_.range().first + static_cast<int>(end);
}

at::Tensor Chunk::run(const Segment& segment, at::Tensor values, const models::Pass& pass) const {
  for (std::size_t i = 0; i < segment.count; ++i) {
    values = model_.layers()[segment.first + i]->forward(values, pass);
  }
  return values;
}

const FrozenRows* Chunk::rows_that_hold(const Phase& phase, MicroBatch micro_batch) const {
  FrozenRows* const rows = options_.frozen_rows;
  if (rows == nullptr || options_.first_trained_layer < model_.range().first) return nullptr;
  return rows->holds(phase, micro_batch) ? rows : nullptr;
}

Flow Chunk::forward(const Phase& phase, MicroBatch micro_batch, const Flow& input) {
  Kept kept{pass_of(input.rows, phase, options_, micro_batch), {}, {}};
  const bool keeps = phase.training && has_backward();
  const at::AutoGradMode grad_mode(keeps && !options_.recompute);
  // Forwards that a backward repeats are not counted again.
  models::Pass counted = kept.pass;
  if (phase.training) counted.load = &load_;
  const bool held = rows_that_hold(phase, micro_batch) != nullptr;
  const bool keeps_rows =
      options_.frozen_rows != nullptr && phase.training && has_first_trained_layer();
  at::Tensor values = input.values;
  for (const Segment& segment : segments()) {
    if (held && !has_backward(segment)) {
      kept.inputs.emplace_back();
      if (!options_.recompute) kept.outputs.emplace_back();
      continue;
    }
    if (keeps_rows && !held && segment.first == frozen_layers()) {
      options_.frozen_rows->keep({values, input.rows});
    }
    // Every segment has its own graph; backward() connects them by the gradients of their inputs.
    if (keeps) values = passes_gradient(segment) ? leaf_of(values) : values.detach();
    kept.inputs.push_back(keeps && has_backward(segment) ? values : at::Tensor());
    values = run(segment, values, counted);
    if (!options_.recompute) kept.outputs.push_back(has_backward(segment) ? values : at::Tensor());
  }
  if (keeps) {
    // A second forward would overwrite activations that a backward still needs.
    const bool fresh = kept_.emplace(micro_batch, std::move(kept)).second;
    TORCH_INTERNAL_ASSERT(fresh, "micro-batch ", number(micro_batch), " has two forwards");
  }
  return Flow{values.detach(), input.rows};
}

at::Tensor Chunk::backward(MicroBatch micro_batch, at::Tensor gradient) {
  if (!has_backward()) return {};
  auto found = kept_.extract(micro_batch);
  TORCH_INTERNAL_ASSERT(!found.empty(), "micro-batch ", number(micro_batch),
                        " has a backward without a forward");
  Kept& kept = found.mapped();
  const BackwardOnThisThread here;
  std::optional<kernels::QueueWeightGradients> queueing;
  if (options_.splits_backward) queueing.emplace(queues_[micro_batch]);
  const std::vector<Segment> parts = segments();
  for (std::size_t i = parts.size(); i-- > 0 && has_backward(parts[i]);) {
    // Moved out, so that each segment's memory is freed as soon as its backward is done.
    at::Tensor input = std::move(kept.inputs[i]);
    at::Tensor output;
    if (options_.recompute) {
      const at::AutoGradMode with_grad(true);
      output = run(parts[i], input, kept.pass);
    } else {
      output = std::move(kept.outputs[i]);
    }
    // An output without gradient belongs to a head that is the only trained layer: its gradient was
    // computed with the loss.
    if (output.requires_grad()) torch::autograd::backward({output}, {gradient});
    gradient = input.grad();
  }
  return gradient;
}

void Chunk::weight_gradients(MicroBatch micro_batch) {
  if (!has_backward()) return;
  auto found = queues_.extract(micro_batch);
  TORCH_INTERNAL_ASSERT(!found.empty(), "micro-batch ", number(micro_batch),
                        " has weight gradients without a backward");
  found.mapped().play();
}

}  // namespace strait::stages
