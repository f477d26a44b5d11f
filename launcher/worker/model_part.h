#pragma once

#include "launcher/run/inference.h"
#include "launcher/worker/streamed_layers.h"
#include "models/key_value_cache.h"
#include "models/model.h"

namespace strait::worker {

// Consecutive layers of a trained model that answer requests, with the keys and values of every
// sequence that goes on. Without gradients, in float32. One thread.
class ModelPart {
 public:
  // The model is on `device`. `layer_done` is called after each layer, so that a slow one still
  // counts as progress; `streamed` brings the weights of those that do not stay in memory.
  explicit ModelPart(std::unique_ptr<models::Model> model, at::Device device = at::kCPU,
                     std::function<void()> layer_done = {},
                     std::unique_ptr<StreamedLayers> streamed = nullptr);

  models::Model& model() { return *model_; }

  // The hidden state after these layers: [rows, length, hidden]. `values` is that of the layers
  // before; undefined where the embedding is here. A batch without sequences has no result.
  at::Tensor forward(const run::InferenceRequest& request, const at::Tensor& values);
  // Only where the LM head is here. A batch without sequences has no answer.
  std::optional<run::InferenceAnswer> answer(const run::InferenceRequest& request,
                                             const at::Tensor& hidden);

 private:
  struct Sequence {
    Sequence(std::int64_t capacity, models::CacheFormat format) : cache(capacity, format) {}
    models::SequenceCache cache;
    std::vector<std::int32_t> tokens;
  };

  at::Tensor extend(const run::ExtendBatch& request, at::Tensor values);
  run::InferenceAnswer choose(const run::ExtendBatch& request, const at::Tensor& hidden);
  at::Tensor score(const run::ScoreRows& request, at::Tensor values);
  at::Tensor run(at::Tensor values, const models::Pass& pass);

  std::unique_ptr<models::Model> model_;
  at::Device device_;
  std::function<void()> layer_done_;
  std::unique_ptr<StreamedLayers> streamed_;  // null: all weights stay
  std::map<std::int64_t, Sequence> sequences_;
};

// Asks a whole model in this process, one request after the other, until the client has finished.
void answer_here(ModelPart& whole, run::InferenceClient& client);

// The next token of a sequence that has these tokens, from its logits (float32, one for each token
// of the vocabulary). A pure function: chance depends on the seed, the number of the prompt and the
// length, so that other sequences, their order and the stages change nothing.
std::int64_t choose_token(const at::Tensor& logits, const run::Sampling& sampling,
                          std::int64_t number, std::span<const std::int32_t> tokens);

}  // namespace strait::worker
