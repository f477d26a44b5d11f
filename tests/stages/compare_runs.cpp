#include "tests/stages/compare_runs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace strait::stages {
namespace {

// All digits, for differences in the last bit.
void expect_same_values(const std::string& name, const std::vector<double>& left,
                        const std::vector<double>& right) {
  ASSERT_EQ(left.size(), right.size()) << name;
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i], right[i]) << fmt::format("{} {}: {:a} and {:a}", name, i, left[i], right[i]);
  }
}

}  // namespace

void expect_same_tensors(const Tensors& one, const Tensors& other) {
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, tensor] : one) {
    ASSERT_TRUE(other.contains(name)) << name;
    EXPECT_TRUE(at::equal(tensor, other.at(name))) << name;
  }
}

void expect_same_run(const RunResult& left, const RunResult& right, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_TRUE(left.errors.empty()) << left.errors.front();
  ASSERT_TRUE(right.errors.empty()) << right.errors.front();
  expect_same_values("loss", left.losses, right.losses);
  expect_same_values("norm", left.norms, right.norms);
  expect_same_values("evaluation", left.evaluations, right.evaluations);
  expect_same_tensors(left.saved, right.saved);
}

RunResult joined(const RunResult& first, RunResult rest) {
  rest.losses.insert(rest.losses.begin(), first.losses.begin(), first.losses.end());
  rest.norms.insert(rest.norms.begin(), first.norms.begin(), first.norms.end());
  return rest;
}

}  // namespace strait::stages
