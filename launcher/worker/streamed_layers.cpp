#include "launcher/worker/streamed_layers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>
#include <malloc.h>

#include <algorithm>

namespace strait::worker {
namespace {

std::int64_t bytes_of(const models::Layer& layer) {
  std::int64_t bytes = 0;
  for (const models::Parameter& parameter : layer.parameters()) {
    if (!parameter.owned) continue;
    bytes += static_cast<std::int64_t>(parameter.quantized ? parameter.quantized->bytes.nbytes()
                                                           : parameter.value.nbytes());
  }
  return bytes;
}

// Every layer that holds the tensor sees it. Of no memory, but of its shape, until it is read.
void release(at::Tensor tensor) {
  tensor.set_data(at::zeros({}, tensor.options().requires_grad(false)).expand(tensor.sizes()));
}

std::int64_t largest_block(const models::Model& model) {
  const auto& layers = model.layers();
  std::int64_t largest = 1;
  for (std::size_t i = 1; i + 1 < layers.size(); ++i) {
    largest = std::max(largest, bytes_of(*layers[i]));
  }
  return largest;
}

void release(const models::Layer& layer) {
  for (const models::Parameter& parameter : layer.parameters()) {
    release(parameter.quantized ? parameter.quantized->bytes : parameter.value);
  }
}

}  // namespace

StreamedLayers::StreamedLayers(const models::Model& model, Read read, std::int64_t memory)
    : model_(model), read_(std::move(read)) {
  const at::NoGradGuard no_grad;
  // Tensors in the heap would leave holes there; those of more bytes go back to the system. Each
  // expert of a layer has tensors of its own, which are small.
  constexpr int kMapped = 64 << 10;
  ::mallopt(M_MMAP_THRESHOLD, kMapped);
  choose(memory);
  for (const auto& layer : model_.layers()) {
    if (std::ranges::find(order_, layer->index()) != order_.end()) {
      release(*layer);
      continue;
    }
    for (const models::Parameter& parameter : layer->parameters()) {
      if (parameter.owned) models::assign(parameter, read_(parameter.name));
    }
  }
}

std::int64_t StreamedLayers::least_bytes(const models::Model& model) {
  const std::int64_t embedding = bytes_of(*model.layers().front());
  const std::int64_t head = bytes_of(*model.layers().back());
  return embedding + head + std::max({2 * largest_block(model), embedding, head});
}

// The blocks that stay lie between those that do not, so that there is time to read these.
void StreamedLayers::choose(std::int64_t memory) {
  const auto& layers = model_.layers();
  const auto count = static_cast<std::int64_t>(blocks());
  const std::int64_t staying =
      std::clamp<std::int64_t>((memory - least_bytes(model_)) / largest_block(model_), 0, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool stays = (i + 1) * staying / count > i * staying / count;
    if (!stays) order_.push_back(layers[static_cast<std::size_t>(i + 1)]->index());
  }
}

std::vector<models::Parameter> StreamedLayers::read(int layer) const {
  const c10::ParallelGuard one_thread(true);  // the other cores compute
  const at::NoGradGuard no_grad;
  std::vector<models::Parameter> values;
  for (const models::Parameter& parameter : model_.layer(layer).parameters()) {
    models::Parameter& one = values.emplace_back(parameter);
    const at::Tensor tensor = read_(parameter.name);
    if (parameter.quantized) {
      one.quantized = kernels::make_quantized_matrix(parameter.quantized->shape, at::kCPU);
      models::assign(one, tensor);
    } else {
      one.value =
          tensor.to(parameter.value.scalar_type()).contiguous().view(parameter.value.sizes());
    }
  }
  return values;
}

void StreamedLayers::need(int layer) {
  const auto place = std::ranges::find(order_, layer);
  if (place == order_.end() || layer == loaded_) return;
  const at::NoGradGuard no_grad;
  std::vector<models::Parameter> values;
  if (next_.valid()) values = next_.get();
  if (coming_ != layer) values = read(layer);
  if (loaded_ >= 0) release(model_.layer(loaded_));
  const std::vector<models::Parameter>& parameters = model_.layer(layer).parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& quantized = parameters[i].quantized;
    at::Tensor held = quantized ? quantized->bytes : parameters[i].value;
    held.set_data(quantized ? values[i].quantized->bytes : values[i].value);
  }
  loaded_ = layer;
  // A pass follows the other, and begins with the first of them.
  coming_ = std::next(place) == order_.end() ? order_.front() : *std::next(place);
  if (coming_ == layer) return;
  next_ = std::async(std::launch::async, [this, next = coming_] { return read(next); });
}

}  // namespace strait::worker
