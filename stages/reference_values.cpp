#include "stages/reference_values.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "framework/store/store_error.h"

namespace strait::stages {
namespace {

constexpr const char* kTrainingValues = "reference.training";
constexpr const char* kEvaluationValues = "reference.evaluation";

std::string name_of_values(const char* data, std::int64_t replica) {
  return fmt::format("{}.{}", data, replica);
}

// The number of replicas that share the rows; then, for each row, the number of its values and the
// values.
at::Tensor to_tensor(const std::vector<std::vector<double>>& rows, std::int64_t replicas) {
  std::vector<double> values{static_cast<double>(replicas)};
  for (const std::vector<double>& row : rows) {
    values.push_back(static_cast<double>(row.size()));
    values.insert(values.end(), row.begin(), row.end());
  }
  return at::tensor(values, at::kDouble);
}

// Adds the rows that have values. Returns the number of replicas that shared them.
std::int64_t add_rows(const at::Tensor& stored, const std::string& name,
                      std::vector<std::vector<double>>& rows) {
  const at::Tensor flat = stored.to(at::kDouble).contiguous();
  const std::span values(flat.const_data_ptr<double>(), static_cast<std::size_t>(flat.numel()));
  std::size_t at = 1;
  for (std::size_t row = 0; at < values.size(); ++row) {
    const double count = values[at++];
    // Negated, so that NaN is refused, too.
    if (!(count >= 0 && count <= static_cast<double>(values.size() - at))) {
      throw store::StoreError(store::StoreError::Kind::bad_input,
                              "tensor {} of the checkpoint does not hold the values of rows", name);
    }
    if (row == rows.size()) rows.emplace_back();
    const auto part = values.subspan(at, static_cast<std::size_t>(count));
    if (!part.empty()) rows[row].assign(part.begin(), part.end());
    at += part.size();
  }
  return values.empty() ? 0 : static_cast<std::int64_t>(values.front());
}

// Adds what each replica saved. Returns false if the checkpoint lacks the part of one.
bool add_replicas(const char* data, const ReadTensor& read, const HasTensor& has,
                  std::vector<std::vector<double>>& rows) {
  std::int64_t replicas = 1;
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    const std::string name = name_of_values(data, replica);
    if (!has(name)) return false;
    replicas = add_rows(read(name), name, rows);
  }
  return true;
}

}  // namespace

ReferenceValues::ReferenceValues(const data::SampleOrderOptions& order)
    : order_(order), training_(static_cast<std::size_t>(order.rows)) {}

bool ReferenceValues::has(store::Step step) const {
  return std::ranges::none_of(order_.samples(step), [this](store::SampleId sample) {
    return training_.at(static_cast<std::size_t>(number(sample))).empty();
  });
}

bool ReferenceValues::is_complete(bool evaluation) const {
  for (std::int64_t step = 0; step < epoch_steps(); ++step) {
    if (!has(store::Step{step})) return false;
  }
  return has_evaluation_ || !evaluation;
}

void ReferenceValues::played(const Phase& phase) {
  if (!phase.reads_training()) {
    has_evaluation_ = true;
    return;
  }
  for (const store::SampleId sample : order_.samples(phase.step)) {
    std::vector<double>& row = training_.at(static_cast<std::size_t>(number(sample)));
    // Another stage has the values. A row that is not empty says that they were computed.
    if (row.empty()) row = {0};
  }
}

void ReferenceValues::put(const Phase& phase, store::SampleId sample, std::vector<double> answers) {
  Rows& rows = phase.reads_training() ? training_ : evaluation_;
  const auto row = static_cast<std::size_t>(number(sample));
  if (row >= rows.size()) rows.resize(row + 1);
  rows[row] = std::move(answers);
}

const std::vector<double>& ReferenceValues::of(const Phase& phase, store::SampleId sample) const {
  const Rows& rows = phase.reads_training() ? training_ : evaluation_;
  return rows.at(static_cast<std::size_t>(number(sample)));
}

std::vector<tensors::NamedTensor> ReferenceValues::saved(std::int64_t replica,
                                                         std::int64_t replicas) const {
  std::vector<tensors::NamedTensor> tensors{
      {name_of_values(kTrainingValues, replica), to_tensor(training_, replicas)}};
  if (has_evaluation_) {
    tensors.push_back(
        {name_of_values(kEvaluationValues, replica), to_tensor(evaluation_, replicas)});
  }
  return tensors;
}

void ReferenceValues::restore(const ReadTensor& read, const HasTensor& has) {
  add_replicas(kTrainingValues, read, has, training_);
  has_evaluation_ = add_replicas(kEvaluationValues, read, has, evaluation_);
}

}  // namespace strait::stages
