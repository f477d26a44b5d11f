#include "tests/stages/compare_runs.h"

#include <gtest/gtest.h>

namespace strait::stages {

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
  EXPECT_EQ(left.losses, right.losses);
  EXPECT_EQ(left.norms, right.norms);
  EXPECT_EQ(left.evaluations, right.evaluations);
  expect_same_tensors(left.saved, right.saved);
}

RunResult joined(const RunResult& first, RunResult rest) {
  rest.losses.insert(rest.losses.begin(), first.losses.begin(), first.losses.end());
  rest.norms.insert(rest.norms.begin(), first.norms.begin(), first.norms.end());
  return rest;
}

}  // namespace strait::stages
