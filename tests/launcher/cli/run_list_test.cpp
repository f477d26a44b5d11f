#include "launcher/cli/run_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/cli/run_options.h"
#include "tests/scratch_directory.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class RunList : public testing::Test {
 protected:
  void add_run(const std::string& name, const std::string& status) {
    fs::create_directories(scratch_ / ("runs/" + name));
    ScratchDirectory::write(scratch_ / ("runs/" + name + "/plan.json"), "{}");
    if (!status.empty()) {
      ScratchDirectory::write(scratch_ / ("runs/" + name + "/status.json"), status);
    }
  }
  static std::string ended(int code, bool stopped, double updated) {
    return json{{"state", "ended"},
                {"step", 3},
                {"steps", 4},
                {"loss", 0.5},
                {"updated", updated},
                {"outcome", {{"code", code}, {"meaning", "peer lost"}, {"stopped", stopped}}}}
        .dump();
  }

  ScratchDirectory scratch_;
};

TEST_F(RunList, HasTheLatestFirstAndTheDamagedToo) {
  add_run("done", ended(0, false, 10));
  add_run("stopped", ended(0, true, 30));
  add_run("lost", ended(20, false, 20));
  add_run("gone", R"({"state":"training","step":1,"steps":4,"loss":null,"updated":5.0})");
  add_run("new", "");
  add_run("torn", "{");
  add_run("other", "{}");
  fs::create_directories(scratch_ / "runs/no-run");
  ScratchDirectory::write(scratch_ / "runs/file", "");
  std::vector<std::string> seen;
  for (const ListedRun& run : runs_in(scratch_ / "runs")) {
    seen.push_back(run.path.filename().string() + ": " + run.state);
    EXPECT_FALSE(run.live);
  }
  EXPECT_THAT(seen, testing::ElementsAre("stopped: stopped", "lost: ended: peer lost", "done: done",
                                         "gone: its launcher is gone", "new: not started",
                                         "other: its status.json is of another build",
                                         "torn: its status.json is damaged"));
  EXPECT_EQ(runs_in(scratch_ / "runs")[0].loss, 0.5);
  EXPECT_TRUE(runs_in(scratch_ / "nowhere").empty());
}

class InFolder {
 public:
  explicit InFolder(const fs::path& folder) : before_(fs::current_path()) {
    fs::current_path(folder);
  }
  ~InFolder() { fs::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  fs::path before_;
};

TEST_F(RunList, BareNameIsThatOfARun) {
  add_run("a", "");
  add_run("b", "");
  fs::create_directories(scratch_ / "a");  // no run
  fs::create_directories(scratch_ / "b");
  ScratchDirectory::write(scratch_ / "b/plan.json", "{}");
  const InFolder here(scratch_.path());
  EXPECT_EQ(run_directory("a"), "runs/a");
  EXPECT_EQ(run_directory("b"), "b");
  for (const char* other : {"runs/a", "./a", "nothing", "", "/", "a/"}) {
    EXPECT_EQ(run_directory(other), other);
  }
}

}  // namespace
}  // namespace strait::cli
