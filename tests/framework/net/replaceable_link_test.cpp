#include "framework/net/replaceable_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/memory_links.h"

namespace strait::net {
namespace {

using testing::HasSubstr;

using Ends = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;

TEST(ReplaceableLink, WithoutALinkEveryCallSaysWhoIsLost) {
  ReplaceableLink link("replica 0.0~0.1", "stage 0.1", nullptr);
  try {
    link.receive();
    FAIL();
  } catch (const LinkError& error) {
    EXPECT_EQ(error.kind(), LinkError::Kind::lost);
    EXPECT_THAT(error.what(), HasSubstr("replica 0.0~0.1: stage 0.1"));
  }
  EXPECT_THROW(link.send(Frame(1)), LinkError);
  link.abort(LinkError(LinkError::Kind::aborted, "after the end"));
  EXPECT_EQ(link.state().peer, "stage 0.1");
  EXPECT_EQ(link.state().sent_bytes, 0U);
}

TEST(ReplaceableLink, ANewLinkIsSpokenToAndBytesAddUp) {
  Ends first = memory_links({0, 0}, {0, 1}, "replica 0.0~0.1");
  ReplaceableLink link("replica 0.0~0.1", "stage 0.1", std::move(first.first));
  link.send(Frame(100));
  EXPECT_EQ(first.second->receive().size(), 100U);
  const std::uint64_t before = link.state().sent_bytes;
  EXPECT_GE(before, 100U);

  Ends second = memory_links({0, 0}, {0, 1}, "replica 0.0~0.1");
  link.replace(std::move(second.first));
  EXPECT_THROW(first.second->receive(), LinkError);
  link.send(Frame(7));
  EXPECT_EQ(second.second->receive().size(), 7U);
  second.second->send(Frame(3));
  EXPECT_EQ(link.receive().size(), 3U);
  EXPECT_GT(link.state().sent_bytes, before);
}

TEST(ReplaceableLink, AbortOfTheFormerLinkWakesItsWaiters) {
  Ends first = memory_links({0, 0}, {0, 1}, "replica 0.0~0.1");
  ReplaceableLink link("replica 0.0~0.1", "stage 0.1", std::move(first.first));
  auto waiting = std::async(std::launch::async, [&] { return link.receive(); });
  link.replace(nullptr);
  EXPECT_THROW(waiting.get(), LinkError);
}

}  // namespace
}  // namespace strait::net
