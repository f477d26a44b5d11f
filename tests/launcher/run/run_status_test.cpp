#include "launcher/run/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "tests/framework/store/system_faults.h"
#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RunStatus, RefusesAFileThatIsNoObject) {
  const ScratchDirectory run;
  for (const char* text : {"[1]", "7", "{"}) {
    ScratchDirectory::write(run / "status.json", text);
    EXPECT_THAT(refusal_of<base::UserError>([&] { read_run_status(run / ""); }),
                testing::HasSubstr("status.json is damaged"));
  }
}

TEST(ReplicaRequests, AreTakenOnce) {
  const ScratchDirectory run;
  request_replica(ReplicaRequest::leave, run / "", 3);
  request_replica(ReplicaRequest::leave, run / "", 1);
  request_replica(ReplicaRequest::rejoin, run / "", 2);
  ScratchDirectory::write(run / "leave-x", "");
  EXPECT_THAT(take_requests(ReplicaRequest::leave, run / ""), ElementsAre(1, 3));
  EXPECT_THAT(take_requests(ReplicaRequest::leave, run / ""), IsEmpty());
  EXPECT_THAT(take_requests(ReplicaRequest::rejoin, run / ""), ElementsAre(2));
  EXPECT_THAT(take_requests(ReplicaRequest::leave, run / "gone"), IsEmpty());
}

// The launcher of a live run asks every second: a disk error must not end the run.
TEST(ReplicaRequests, WaitWhereTheDirectoryCannotBeListed) {
  const ScratchDirectory run;
  request_replica(ReplicaRequest::leave, run / "", 2);
  const auto take = [&run] { return take_requests(ReplicaRequest::leave, run / ""); };
  const int calls = 4;  // ".", "..", the request, the end
  for (int after = 0; after < calls; ++after) {
    SCOPED_TRACE(testing::Message() << "after " << after);
    store::with_fault({.call = store::SystemCall::readdir, .after = after, .error = EIO},
                      [&] { EXPECT_THAT(take(), IsEmpty()); });
  }
  EXPECT_THAT(take(), ElementsAre(2));
}

}  // namespace
}  // namespace strait::run
