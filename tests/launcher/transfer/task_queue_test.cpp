#include "launcher/transfer/task_queue.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace strait::transfer {
namespace {

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

TEST(FileWorker, HandsErrorsOverToTheFirstThread) {
  TaskQueue first;
  FileWorker worker(first);
  std::vector<std::string> errors;
  const auto after = [&errors](const std::exception_ptr& error) {
    errors.push_back(text_of(error));
  };
  worker.run([] { throw std::length_error("too long"); }, after);
  worker.run([] {}, after);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (errors.size() < 2 && std::chrono::steady_clock::now() < deadline) {
    for (const TaskQueue::Task& task : first.take_until(deadline)) task();
  }
  EXPECT_EQ(errors, (std::vector<std::string>{"too long", "none"}));
}

}  // namespace
}  // namespace strait::transfer
