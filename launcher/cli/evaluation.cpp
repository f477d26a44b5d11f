#include "launcher/cli/evaluation.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <variant>

#include "launcher/base/errors.h"

namespace strait::cli {
namespace {

constexpr stages::Phase kEvaluation{store::Step{}, false};
// What one message holds easily.
constexpr std::int64_t kMostTokens = 1 << 16;

stages::BatchOptions batch_of(const data::TokenFile& data, std::int64_t rows) {
  stages::BatchOptions options;
  options.micro_batch_rows = std::clamp<std::int64_t>(kMostTokens / data.row_length(), 1, rows);
  return options;
}

}  // namespace

Evaluation::Evaluation(std::shared_ptr<const data::TokenFile> data, std::int64_t rows,
                       std::size_t in_flight)
    : data_(std::move(data)),
      source_(nullptr, data_, batch_of(*data_, rows)),
      in_flight_(in_flight),
      target_tokens_(source_.target_tokens(kEvaluation)) {
  const std::int64_t per_request = batch_of(*data_, rows).micro_batch_rows;
  losses_.resize(static_cast<std::size_t>((data_->rows() + per_request - 1) / per_request));
}

run::ScoreRows Evaluation::next() {
  const auto number = static_cast<MicroBatch>(asked_++);
  const codec::Rows rows = source_.rows(kEvaluation, number);
  const std::vector<std::int64_t> tokens = source_.padded_tokens(kEvaluation, number);
  run::ScoreRows request;
  request.number = strait::number(number);
  request.padded_length = rows.padded_length;
  request.tokens.assign(tokens.begin(), tokens.end());
  std::int64_t row_start = 0;
  for (const codec::Row& row : rows.rows) {
    request.documents_of_rows.push_back(std::ssize(row.documents));
    std::ranges::copy(row.documents, std::back_inserter(request.document_lengths));
    for (const std::int64_t place : data_->targets(row.sample)) {
      std::vector<std::int64_t>& spans = request.target_spans;
      const bool goes_on = !spans.empty() && spans.back() == row_start + place;
      if (!goes_on) spans.insert(spans.end(), 2, row_start + place);
      spans.back() = row_start + place + 1;
    }
    row_start += rows.padded_length;
  }
  return request;
}

std::vector<run::InferenceRequest> Evaluation::begin() {
  std::vector<run::InferenceRequest> requests;
  while (asked_ < std::min(in_flight_, losses_.size())) requests.emplace_back(next());
  return requests;
}

std::vector<run::InferenceRequest> Evaluation::on_answer(const run::InferenceAnswer& answer) {
  const auto* scored = std::get_if<run::ScoredRows>(&answer);
  if (scored == nullptr || scored->number < 0 ||
      scored->number >= static_cast<std::int64_t>(asked_)) {
    throw base::MessageError("a loss of rows that were not asked for");
  }
  losses_[static_cast<std::size_t>(scored->number)] = scored->loss_sum;
  ++answered_;
  if (asked_ == losses_.size()) return {};
  return {next()};
}

double Evaluation::loss() const {
  const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  return target_tokens_ == 0 ? 0.0 : sum / static_cast<double>(target_tokens_);
}

}  // namespace strait::cli
