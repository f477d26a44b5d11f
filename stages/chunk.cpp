#include "stages/chunk.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "models/pass.h"

namespace strait::stages {
namespace {

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

models::Pass Chunk::next_pass(const Phase& phase, MicroBatch micro_batch, const codec::Rows& rows) {
  const bool sliced = phase.training && options_.slices > 1;
  std::vector<std::vector<std::int64_t>> documents;
  documents.reserve(rows.rows.size());
  for (const codec::Row& row : rows.rows) documents.push_back(row.documents);
  Sliced* const earlier = sliced ? &sliced_[number(micro_batch) / options_.slices] : nullptr;
  const int slice = sliced ? number(micro_batch) % options_.slices : 0;
  models::Pass pass = models::make_pass(documents, rows.padded_length,
                                        slice > 0 ? earlier->past : std::vector<std::int64_t>());
  pass.seed = options_.seed;
  pass.step = static_cast<std::uint64_t>(number(phase.step));
  const std::int32_t passes = sliced ? options_.slices : 1;  // of a micro-batch
  const std::int32_t among_all = options_.first_micro_batch * passes + number(micro_batch);
  pass.micro_batch = static_cast<std::uint64_t>(among_all);
  pass.training = phase.training;
  pass.adapters = phase.reference == Phase::Reference::none;
  // Layers divide it by the root of the length of their input; it is meant by that of the row.
  if (phase.training) pass.noise = options_.noise / std::sqrt(static_cast<double>(passes));
  pass.balance_share = 1 / static_cast<double>(options_.micro_batches);
  if (!sliced) return pass;
  pass.slice = {earlier->keys, slice, false};
  earlier->past.resize(documents.size());
  for (std::size_t row = 0; row < documents.size(); ++row) {
    // All but the first document begin here.
    const std::vector<std::int64_t>& lengths = documents[row];
    if (slice == 0 || lengths.size() > 1) earlier->past[row] = 0;
    if (!lengths.empty()) earlier->past[row] += lengths.back();
  }
  return pass;
}

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

at::Tensor Chunk::run(const Segment& segment, at::Tensor values, models::Pass& pass) const {
  pass.slice.trains = has_backward(segment);
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
  Kept kept{next_pass(phase, micro_batch, input.rows), {}, {}};
  const bool keeps = phase.training && has_backward();
  const at::AutoGradMode grad_mode(keeps && !options_.recompute);
  // Forwards that a backward repeats are not counted again.
  models::Pass counted = kept.pass;
  if (phase.training) counted.load = &load_;
  const bool held = rows_that_hold(phase, micro_batch) != nullptr;
  const bool keeps_rows =
      options_.frozen_rows != nullptr && phase.training && has_first_trained_layer();
  ActivationOffload* const offload = options_.offload;
  std::optional<ActivationOffload::Recording> recording;
  // The backward of the first one that waits runs next, so it stays.
  if (keeps && offload != nullptr && !kept_.empty()) {
    kept.offloaded = std::make_unique<ActivationOffload::Pass>();
    recording.emplace(*offload, *kept.offloaded);
  }
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
  recording.reset();
  if (offload != nullptr) offload->settle();
  if (kept.offloaded != nullptr) offload->leave(*kept.offloaded);
  if (keeps) {
    // A second forward would overwrite activations that a backward still needs.
    const bool fresh = kept_.emplace(micro_batch, std::move(kept)).second;
    TORCH_INTERNAL_ASSERT(fresh, "micro-batch ", number(micro_batch), " has two forwards");
  } else if (counted.slice.keys != nullptr && counted.slice.index + 1 == options_.slices) {
    sliced_.erase(number(micro_batch) / options_.slices);
  }
  return Flow{values.detach(), input.rows};
}

at::Tensor Chunk::backward(MicroBatch micro_batch, at::Tensor gradient) {
  if (!has_backward()) return {};
  auto found = kept_.extract(micro_batch);
  TORCH_INTERNAL_ASSERT(!found.empty(), "micro-batch ", number(micro_batch),
                        " has a backward without a forward");
  Kept& kept = found.mapped();
  ActivationOffload* const offload = options_.offload;
  if (kept.offloaded != nullptr) offload->arrive(*kept.offloaded);
  if (!kept_.empty() && kept_.begin()->second.offloaded != nullptr) {
    offload->come_back(*kept_.begin()->second.offloaded);
  }
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
    backward(parts[i], kept.pass, std::move(output), std::move(gradient));
    gradient = input.grad();
  }
  if (offload != nullptr) offload->settle();
  if (kept.pass.slice.index == 0) sliced_.erase(number(micro_batch) / options_.slices);
  return gradient;
}

void Chunk::backward(const Segment& segment, const models::Pass& pass, at::Tensor output,
                     at::Tensor gradient) const {
  models::SliceKeys::Roots roots;
  if (pass.slice.keys != nullptr) {
    const int first = model_.range().first + static_cast<int>(segment.first);
    roots = pass.slice.keys->take_roots(first, first + static_cast<int>(segment.count) - 1,
                                        pass.slice.index);
  }
  // An output without gradient belongs to a head that is the only trained layer: its gradient was
  // computed with the loss.
  if (output.requires_grad()) {
    roots.values.push_back(std::move(output));
    roots.gradients.push_back(std::move(gradient));
  }
  if (!roots.values.empty()) torch::autograd::backward(roots.values, roots.gradients);
}

void Chunk::weight_gradients(MicroBatch micro_batch) {
  if (!has_backward()) return;
  auto found = queues_.extract(micro_batch);
  TORCH_INTERNAL_ASSERT(!found.empty(), "micro-batch ", number(micro_batch),
                        " has weight gradients without a backward");
  found.mapped().play();
}

}  // namespace strait::stages
