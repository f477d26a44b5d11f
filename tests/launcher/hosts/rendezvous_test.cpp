#include "launcher/hosts/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::hosts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Clock = std::chrono::steady_clock;

constexpr auto kLimit = std::chrono::seconds(60);
const std::string kShared = std::string(62, 'a') + "01";

// Any other secret.
const std::string kOther = std::string(62, 'a') + "02";

// A node of three, as join_run() is towards the launcher.
class Comer {
 public:
  Comer(const std::string& endpoint, std::uint32_t rank, std::uint64_t start,
        std::uint32_t nodes = 3, const std::string& secret = kShared)
      : node_(options(rank, secret)),
        link_(node_.connect(endpoint, join_link(rank, nodes, net::ProcessName::coordinator(),
                                                launcher_keys(secret).public_key))) {
    try {
      link_->send(format(NodeHello{"machine", start}));
    } catch (const net::LinkError&) {  // refused before it could speak; next() says the same
    }
  }

  JoinMessage next() {
    const auto frame = link_->receive_until(Clock::now() + kLimit);
    if (!frame) throw std::runtime_error("nothing came");
    return parse_join_message(*frame);
  }
  std::string job() { return std::get<StartAgent>(next()).job; }
  // The kind of the error that ends the link.
  net::LinkError::Kind end() {
    try {
      next();
    } catch (const net::LinkError& error) {
      return error.kind();
    }
    throw std::runtime_error("a message came");
  }

 private:
  static net::NodeOptions options(std::uint32_t rank, const std::string& secret) {
    net::NodeOptions options;
    options.name = net::ProcessName::host_agent(rank);
    options.keys = node_keys(secret, rank);
    options.on_event = [](const std::string&) {};
    return options;
  }

  net::Node node_;
  std::unique_ptr<net::Link> link_;
};

// What this process is told. It tries again as join_run() does: while the place is that of another
// process, or the loss of that one was not noticed, each of the two links may end, at any time.
JoinMessage answer(const std::string& endpoint, std::uint32_t rank, std::uint64_t start) {
  const auto deadline = Clock::now() + kLimit;
  while (true) {
    try {
      return Comer(endpoint, rank, start).next();
    } catch (const net::LinkError& error) {
      if (!error.peer_gone() || Clock::now() >= deadline) throw;
    }
  }
}

class RendezvousTest : public testing::Test {
 protected:
  static std::vector<Rendezvous::Host> hosts() {
    return {{"node0", ""},
            {"node1", node_keys(kShared, 1).public_key},
            {"node2", node_keys(kShared, 2).public_key}};
  }
  std::vector<std::string> absent(std::chrono::seconds limit = kLimit) {
    return rendezvous_->wait_for({"node0", "node1", "node2"}, limit, [] { return false; });
  }
  std::string endpoint() { return rendezvous_->endpoint(); }

  std::unique_ptr<Rendezvous> rendezvous_ =
      std::make_unique<Rendezvous>("127.0.0.1", std::pair(0, 0), launcher_keys(kShared), hosts());
};

TEST_F(RendezvousTest, GivesJobsAndTheEndToNodesThatCome) {
  EXPECT_TRUE(rendezvous_->is_here("node0"));
  EXPECT_FALSE(rendezvous_->is_here("node1"));
  rendezvous_->start_agent("node1", "early");
  Comer one(endpoint(), 1, 11);
  EXPECT_EQ(one.job(), "early");
  EXPECT_THAT(absent(std::chrono::seconds(0)),
              ElementsAre("", "", "it has not joined again within 0 s"));
  Comer two(endpoint(), 2, 22);
  EXPECT_THAT(absent(), Each(IsEmpty()));
  rendezvous_->start_agent("node2", "late");
  EXPECT_EQ(two.job(), "late");
  rendezvous_->end(base::ExitCode::numeric, "the loss is not finite");
  rendezvous_.reset();
  const auto ended = std::get<RunEnded>(one.next());
  EXPECT_EQ(ended.code, base::ExitCode::numeric);
  EXPECT_EQ(ended.text, "the loss is not finite");
  EXPECT_EQ(std::get<RunEnded>(two.next()).code, base::ExitCode::numeric);
}

TEST_F(RendezvousTest, NodeThatComesBackGetsItsJobAgain) {
  rendezvous_->start_agent("node1", "job");
  {
    Comer first(endpoint(), 1, 11);
    EXPECT_EQ(first.job(), "job");
  }
  EXPECT_EQ(std::get<StartAgent>(answer(endpoint(), 1, 12)).job, "job");
}

TEST_F(RendezvousTest, RefusesAnotherNumberOfNodes) {
  Comer other(endpoint(), 1, 11, 4);
  EXPECT_EQ(other.end(), net::LinkError::Kind::refused);
  const auto deadline = Clock::now() + kLimit;
  while (rendezvous_->refusal("node1").empty() && Clock::now() < deadline)
    absent(std::chrono::seconds(0));
  EXPECT_THAT(rendezvous_->refusal("node1"),
              testing::AllOf(HasSubstr("nodes = \"4\""), HasSubstr("nodes = \"3\"")));
}

TEST_F(RendezvousTest, KnowsNobodyWithoutTheSecret) {
  Comer stranger(endpoint(), 1, 11, 3, kOther);
  EXPECT_EQ(stranger.end(), net::LinkError::Kind::unauthenticated);
  EXPECT_THAT(absent(std::chrono::seconds(0))[1], Not(IsEmpty()));
}

TEST_F(RendezvousTest, NamesTwoProcessesWithOneRank) {
  Comer first(endpoint(), 1, 11);
  EXPECT_THAT(rendezvous_->wait_for({"node1"}, kLimit, [] { return false; }), Each(IsEmpty()));
  rendezvous_->start_agent("node1", "job");
  EXPECT_EQ(std::get<StartAgent>(answer(endpoint(), 1, 12)).job, "job");
  // The first process has seen the end of its link, and comes again.
  const auto told = std::get<RunEnded>(answer(endpoint(), 1, 11));
  EXPECT_EQ(told.code, base::ExitCode::bad_input);
  EXPECT_THAT(told.text, HasSubstr("two processes join as node1"));
}

TEST(RendezvousSecret, IsReadFromTheEnvironmentOrAFileAndRemoved) {
  const ScratchDirectory scratch;
  ::setenv("STRAIT_JOIN_SECRET", kShared.c_str(), 1);
  EXPECT_EQ(take_rendezvous_secret(), kShared);
  EXPECT_EQ(std::getenv("STRAIT_JOIN_SECRET"), nullptr);
  const std::string file = (scratch / "secret").string();
  ScratchDirectory::write(file, kOther + "\n");
  ::setenv("STRAIT_JOIN_SECRET_FILE", file.c_str(), 1);
  EXPECT_EQ(take_rendezvous_secret(), kOther);
  const auto refusal = [] {
    return base::user_error(base::ExitCode::bad_input, [] { take_rendezvous_secret(); });
  };
  EXPECT_THAT(refusal(),
              testing::AllOf(HasSubstr("but STRAIT_JOIN_SECRET is not set on this node; set "),
                             HasSubstr("openssl rand -hex 32")));
  ::setenv("STRAIT_JOIN_SECRET", "hunter2", 1);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("has 7 characters"), Not(HasSubstr("hunter2"))));
  ::setenv("STRAIT_JOIN_SECRET_FILE", "nowhere", 1);
  EXPECT_THAT(refusal(), HasSubstr("cannot read nowhere"));
}

TEST(RendezvousSecret, GivesEveryNodeKeysOfItsOwn) {
  std::set<std::string> keys = {launcher_keys(kShared).public_key};
  for (std::uint32_t rank = 0; rank < 300; ++rank) keys.insert(node_keys(kShared, rank).public_key);
  EXPECT_EQ(keys.size(), 301U);
  EXPECT_FALSE(keys.contains(node_keys(kOther, 1).public_key));
}

TEST(JoinTicket, ReadsBackTheSame) {
  JoinTicket ticket;
  ticket.run_name = "a \"name\"";
  ticket.keys = net::CurveKeyPair::generate();
  ticket.endpoint = "tcp://h0:47000";
  EXPECT_EQ(to_text(parse_join_ticket(to_text(ticket))), to_text(ticket));
  EXPECT_THAT(base::user_error(base::ExitCode::mismatch, [] { parse_join_ticket("rubbish"); }),
              HasSubstr("this is not a run token of this build"));
}

}  // namespace
}  // namespace strait::hosts
