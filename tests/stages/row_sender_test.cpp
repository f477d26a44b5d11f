#include "stages/row_sender.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/memory_links.h"
#include "tests/stages/failing_encoder.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {
namespace {

// Both ends of a tied table wait for rows by then, and nothing more is sent.
TEST(RowSender, FailureToEncodeReachesTheOtherEnd) {
  const auto [here, there] = memory_links({0, 0}, {1, 0}, "tie");
  FailingEncoder encoder("no memory for rows");
  Transfer transfer(at::kCPU);
  RowSender sender(*here);
  sender.send(encoder, {}, transfer.to_host(at::zeros({1, 1, 1})));
  EXPECT_THAT([&] { there->receive(); },
              testing::ThrowsMessage<net::LinkError>(testing::HasSubstr("no memory for rows")));
  EXPECT_THAT([&] { sender.receive(); },
              testing::ThrowsMessage<std::runtime_error>("no memory for rows"))
      << "the cause";
}

}  // namespace
}  // namespace strait::stages
