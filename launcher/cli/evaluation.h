#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/data/token_file.h"
#include "launcher/run/inference.h"
#include "stages/batch_source.h"

namespace strait::cli {

// The loss of a model over all rows of a token file, some rows at a time. The sum has one order,
// whatever the order of the answers.
class Evaluation : public run::InferenceClient {
 public:
  // `in_flight`: requests in flight at the same time.
  Evaluation(std::shared_ptr<const data::TokenFile> data, std::int64_t rows, std::size_t in_flight);

  std::vector<run::InferenceRequest> begin() override;
  std::vector<run::InferenceRequest> on_answer(const run::InferenceAnswer& answer) override;
  bool finished() const override { return answered_ == losses_.size(); }

  std::int64_t target_tokens() const { return target_tokens_; }
  double loss() const;  // mean over the target tokens, once finished

 private:
  run::ScoreRows next();

  std::shared_ptr<const data::TokenFile> data_;
  const stages::BatchSource source_;
  const std::size_t in_flight_;
  std::int64_t target_tokens_ = 0;
  std::vector<double> losses_;  // by request
  std::size_t asked_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace strait::cli
