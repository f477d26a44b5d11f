#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/data/token_file.h"
#include "launcher/control/inference.h"
#include "stages/batch_source.h"

namespace strait::app {

// The loss of a model over all rows of a token file, some rows at a time. The sum has one order,
// whatever the order of the answers.
class Evaluation : public control::InferenceClient {
 public:
  // `in_flight`: requests in flight at the same time.
  Evaluation(std::shared_ptr<const data::TokenFile> data, std::int64_t rows, std::size_t in_flight);

  std::vector<control::InferenceRequest> begin() override;
  std::vector<control::InferenceRequest> on_answer(const control::InferenceAnswer& answer) override;
  bool finished() const override { return answered_ == losses_.size(); }

  std::int64_t target_tokens() const { return target_tokens_; }
  double loss() const;  // mean over the target tokens, once finished

 private:
  control::ScoreRows next();

  std::shared_ptr<const data::TokenFile> data_;
  const stages::BatchSource source_;
  const std::size_t in_flight_;
  std::int64_t target_tokens_ = 0;
  std::vector<double> losses_;  // by request
  std::size_t asked_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace strait::app
