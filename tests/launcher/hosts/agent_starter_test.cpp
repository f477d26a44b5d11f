#include "launcher/hosts/agent_starter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>

#include "launcher/base/errors.h"
#include "tests/launcher/hosts/ssh_in_path.h"
#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::hosts {
namespace {

using testing::HasSubstr;

TEST(ForEachHost, ReturnsErrorsOfAnyKindByHost) {
  std::vector<int> done(4);
  const auto errors = for_each_host(done.size(), [&done](std::size_t host) {
    if (host == 1) throw base::UserError(base::ExitCode::peer_lost, "it is gone");
    if (host == 2) throw std::length_error("too long");
    ++done[host];
  });
  EXPECT_THAT(done, testing::ElementsAre(1, 0, 0, 1));
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_EQ(errors[0], nullptr);
  EXPECT_THROW(std::rethrow_exception(errors[1]), base::UserError);
  EXPECT_THROW(std::rethrow_exception(errors[2]), std::length_error);
  EXPECT_EQ(errors[3], nullptr);
  EXPECT_TRUE(for_each_host(0, [](std::size_t) {}).empty());
}

TEST(AgentStarters, StopWaitingForASilentHostWhenCheckThrows) {
  const SshInPath ssh("exec sleep 600");
  plan::Plan plan;
  plan.recipe.hosts.backend = recipe::BackendKind::ssh;
  plan.recipe.hosts.list = {{.name = "h0"}};
  int calls = 0;
  const auto starter = agent_starter_in_run(plan, 0, {}, nullptr, [&calls] {
    if (++calls == 3) throw std::runtime_error("the run has ended");
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  EXPECT_THAT([&] { starter->launcher_address(limit); },
              testing::ThrowsMessage<std::runtime_error>("the run has ended"));
}

TEST(JoinedHosts, AreToldAnOwnAddressOfTheLauncher) {
  const std::vector<std::string> two = {"192.0.2.1", "2001:db8::1"};
  EXPECT_EQ(address_for_joining("", {"192.0.2.1"}), "192.0.2.1");
  EXPECT_EQ(address_for_joining("2001:db8::1", two), "2001:db8::1");
  EXPECT_EQ(address_for_joining("127.0.0.1", {}), "127.0.0.1");
  const auto refusal_of = [](const std::string& configured, const std::vector<std::string>& own) {
    return base::user_error(base::ExitCode::bad_input,
                            [&] { address_for_joining(configured, own); });
  };
  EXPECT_THAT(refusal_of("", two),
              testing::AllOf(HasSubstr("set hosts.address"), HasSubstr("192.0.2.1, 2001:db8::1")));
  EXPECT_THAT(refusal_of("192.0.2.9", two),
              testing::AllOf(HasSubstr("192.0.2.9"), HasSubstr("192.0.2.1, 2001:db8::1")));
  EXPECT_THAT(refusal_of("", {}), HasSubstr("none but loopback, 127.0.0.1"));
}

TEST(JoinedHosts, LateOnesAreNamedBeforeFirewalls) {
  recipe::Recipe::Hosts hosts;
  hosts.backend = recipe::BackendKind::join;
  hosts.join_wait = 600;
  hosts.list = {{.name = "alpha"}, {.name = "beta"}};
  const std::string none = late_hosts_text(hosts, {"alpha", "beta"});
  EXPECT_TRUE(none.starts_with("no host has joined within 600 s")) << none;
  EXPECT_LT(none.find("strait join TOKEN"), none.find("hosts.ports")) << none;
  EXPECT_TRUE(late_hosts_text(hosts, {"beta"}).starts_with("beta has not joined within 600 s"));
  hosts.backend = recipe::BackendKind::ssh;
  EXPECT_THAT(late_hosts_text(hosts, {"beta"}), HasSubstr("beta did not reach the launcher"));
}

// Of a longer file the first bytes are written, as on a disk that becomes full.
class TightFiles {
 public:
  TightFiles() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit tight{16, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tight);
  }
  ~TightFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  TightFiles(const TightFiles&) = delete;
  TightFiles& operator=(const TightFiles&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(AgentStarters, NamesReasonWhyTokenWasWrittenInPart) {
  const ScratchDirectory run;
  recipe::Recipe recipe;
  recipe.hosts.backend = recipe::BackendKind::join;
  recipe.hosts.address = "127.0.0.1";
  recipe.hosts.list = {{.name = "h0"}};
  std::string sentence;
  errno = EACCES;  // of something else
  {
    const TightFiles tight;
    try {
      open_rendezvous(recipe, run.path());
    } catch (const base::UserError& error) {
      sentence = error.what();
    }
  }
  EXPECT_THAT(sentence, testing::AllOf(HasSubstr("cannot write "), HasSubstr("File too large")));
}

}  // namespace
}  // namespace strait::hosts
