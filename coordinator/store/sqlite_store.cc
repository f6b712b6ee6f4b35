#include "coordinator/store/sqlite_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/security/private_file.h"
#include "common/status.h"

namespace muster::store {
namespace {

// "MSTR" distinguishes Muster's files from those of other programs.
constexpr int64_t kApplicationId = 0x4d535452;
constexpr int64_t kLayoutVersion = 1;
// Free space on the disk that users' records leave; on a small disk, an eighth of it.
constexpr uint64_t kReservedBytes = 64 << 20;

absl::StatusCode CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Returns the least string that is greater than every string with this prefix; nullopt when there
// is none.
std::optional<std::string> PrefixEnd(absl::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (end.empty()) return std::nullopt;
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

// `bytes` must outlive the execution of the statement. SQLite binds a null pointer as NULL, so an
// empty view is bound as "".
void BindBlob(sqlite3_stmt* statement, int index, absl::string_view bytes) {
  sqlite3_bind_blob64(statement, index, bytes.empty() ? "" : bytes.data(), bytes.size(),
                      SQLITE_STATIC);
}

std::string ColumnBlob(sqlite3_stmt* statement, int column) {
  const void* data = sqlite3_column_blob(statement, column);
  const int size = sqlite3_column_bytes(statement, column);
  return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
}

// The store has secrets. SQLite gives the files that it adds the mode of the database.
absl::Status MakePrivate(const std::string& path) {
  RETURN_IF_ERROR(security::OpenOwnFile(path, O_RDWR | O_CREAT).status());
  for (const char* suffix : {"-wal", "-shm"}) {
    const absl::Status status = security::OpenOwnFile(path + suffix, O_RDWR).status();
    if (!absl::IsNotFound(status)) RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace

void SqliteStore::CloseDatabase::operator()(sqlite3* database) const { sqlite3_close(database); }
void SqliteStore::FinalizeStatement::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

SqliteStore::~SqliteStore() = default;

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path,
                                                               const SqliteOptions& options) {
  RETURN_IF_ERROR(MakePrivate(path));
  auto store = absl::WrapUnique(new SqliteStore(path));
  absl::MutexLock write_lock(&store->write_mutex_);
  absl::MutexLock read_lock(&store->read_mutex_);
  Connection& writer = store->writer_;
  RETURN_IF_ERROR(store->OpenConnection(writer));
  RETURN_IF_ERROR(store->CheckLayout(writer));
  // By default 2 MiB: a large transaction would read the pages of its keys again and again.
  RETURN_IF_ERROR(store->Execute(writer, "PRAGMA cache_size = -16384"));
  if (options.max_pages > 0) {
    RETURN_IF_ERROR(
        store->Execute(writer, absl::StrCat("PRAGMA max_page_count = ", options.max_pages)));
  }
  RETURN_IF_ERROR(store->Prepare(writer, "BEGIN IMMEDIATE", writer.begin));
  RETURN_IF_ERROR(store->Prepare(writer, "COMMIT", writer.commit));
  RETURN_IF_ERROR(store->Prepare(writer, "ROLLBACK", writer.rollback));
  RETURN_IF_ERROR(store->Prepare(writer,
                                 "INSERT INTO records (key, value) VALUES (?1, ?2) "
                                 "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                                 writer.put));
  RETURN_IF_ERROR(store->Prepare(writer, "DELETE FROM records WHERE key = ?1", writer.erase));

  Connection& reader = store->reader_;
  RETURN_IF_ERROR(store->OpenConnection(reader));
  RETURN_IF_ERROR(store->Prepare(
      reader, "SELECT key, value FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key",
      reader.scan));
  RETURN_IF_ERROR(store->Prepare(
      reader, "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key", reader.scan_all));
  return store;
}

absl::Status SqliteStore::OpenConnection(Connection& connection) const {
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(
      path_.c_str(), &database,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      nullptr);
  connection.database.reset(database);
  if (code != SQLITE_OK) return ToStatus(connection, code, "open");
  // WAL checkpoints of the other connection hold locks for a short time.
  sqlite3_busy_timeout(database, 5000);
  RETURN_IF_ERROR(Execute(connection, "PRAGMA journal_mode = WAL"));
  // A large transaction does not keep the space of its log for good.
  RETURN_IF_ERROR(Execute(connection, "PRAGMA journal_size_limit = 4194304"));
  return Execute(connection, "PRAGMA synchronous = FULL");
}

absl::Status SqliteStore::CheckLayout(Connection& connection) const {
  ASSIGN_OR_RETURN(const int64_t application, QueryInt(connection, "PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, QueryInt(connection, "PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables,
                   QueryInt(connection, "SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && version == 0 && tables == 0) {
    // One transaction, so that a crash leaves an empty file rather than half a layout. The table
    // has row ids: without them, each comparison with a key would copy its value, of up to a
    // megabyte.
    return Execute(connection, absl::StrCat("BEGIN IMMEDIATE;"
                                            "CREATE TABLE records (key BLOB NOT NULL PRIMARY KEY, "
                                            "value BLOB NOT NULL);"
                                            "PRAGMA application_id = ",
                                            kApplicationId,
                                            ";PRAGMA user_version = ", kLayoutVersion, ";COMMIT"));
  }
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " is a database of another program, not a Muster store"));
  }
  if (version > kLayoutVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " was written by a newer Muster (layout ", version,
        "; this version supports layout ", kLayoutVersion, "); start the newer version instead"));
  }
  Statement check;
  RETURN_IF_ERROR(Prepare(connection, "PRAGMA quick_check(1)", check));
  const int code = sqlite3_step(check.get());
  if (code != SQLITE_ROW) return ToStatus(connection, code, "check");
  const std::string verdict = ColumnBlob(check.get(), 0);
  if (verdict != "ok") return absl::DataLossError(absl::StrCat(path_, " is damaged: ", verdict));
  return absl::OkStatus();
}

absl::Status SqliteStore::ToStatus(const Connection& connection, int code,
                                   absl::string_view doing) const {
  if ((code & 0xff) == SQLITE_NOTADB) {
    return absl::DataLossError(absl::StrCat(path_, " is not a database"));
  }
  const char* message = connection.database != nullptr ? sqlite3_errmsg(connection.database.get())
                                                       : sqlite3_errstr(code);
  return absl::Status(CodeOf(code), absl::StrCat(path_, ": ", doing, ": ", message));
}

absl::Status SqliteStore::Prepare(const Connection& connection, absl::string_view sql,
                                  Statement& out) const {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(connection.database.get(), sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  out.reset(statement);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(connection, code, "prepare");
}

absl::Status SqliteStore::Execute(const Connection& connection, const std::string& sql) const {
  const int code = sqlite3_exec(connection.database.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(connection, code, "open");
}

absl::StatusOr<int64_t> SqliteStore::QueryInt(const Connection& connection,
                                              const std::string& sql) const {
  Statement statement;
  RETURN_IF_ERROR(Prepare(connection, sql, statement));
  const int code = sqlite3_step(statement.get());
  if (code != SQLITE_ROW) return ToStatus(connection, code, "open");
  return sqlite3_column_int64(statement.get(), 0);
}

absl::Status SqliteStore::Run(const Connection& connection, const Statement& statement) const {
  const int code = sqlite3_step(statement.get());
  // sqlite3_reset returns the same error as the step.
  const absl::Status status =
      code == SQLITE_DONE ? absl::OkStatus() : ToStatus(connection, code, "commit");
  sqlite3_reset(statement.get());
  return status;
}

absl::Status SqliteStore::Write(absl::Span<const Mutation> batch) {
  for (const Mutation& mutation : batch) {
    const Statement& statement = mutation.value.has_value() ? writer_.put : writer_.erase;
    BindBlob(statement.get(), 1, mutation.key);
    if (mutation.value.has_value()) BindBlob(statement.get(), 2, *mutation.value);
    RETURN_IF_ERROR(Run(writer_, statement));
  }
  return Run(writer_, writer_.commit);
}

absl::Status SqliteStore::Commit(absl::Span<const Mutation> batch) {
  return Transact(batch, /*synced=*/true);
}

absl::Status SqliteStore::CommitUnsynced(absl::Span<const Mutation> batch) {
  return Transact(batch, /*synced=*/false);
}

absl::Status SqliteStore::Transact(absl::Span<const Mutation> batch, bool synced) {
  absl::MutexLock lock(&write_mutex_);
  if (synced != synced_) {
    // With NORMAL, the log is synced before each checkpoint, and a power loss ends it early.
    RETURN_IF_ERROR(
        Execute(writer_, synced ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
    synced_ = synced;
  }
  RETURN_IF_ERROR(Run(writer_, writer_.begin));
  const absl::Status status = Write(batch);
  // A full disk may already have rolled the transaction back.
  if (!status.ok() && sqlite3_get_autocommit(writer_.database.get()) == 0) {
    (void)Run(writer_, writer_.rollback);
  }
  return status;
}

Space SqliteStore::Measure() const {
  struct statvfs disk;
  if (statvfs(path_.c_str(), &disk) != 0) return Space();
  absl::MutexLock lock(&read_mutex_);
  const uint64_t pages = QueryInt(reader_, "PRAGMA freelist_count").value_or(0);
  const uint64_t page_bytes = QueryInt(reader_, "PRAGMA page_size").value_or(0);
  const uint64_t on_disk = uint64_t{disk.f_bavail} * disk.f_frsize;
  // Pages of deleted records are used again, but a transaction first needs space for its log.
  return {on_disk + std::min(on_disk, pages * page_bytes),
          std::min(kReservedBytes, uint64_t{disk.f_blocks} * disk.f_frsize / 8)};
}

absl::StatusOr<std::vector<Record>> SqliteStore::Scan(absl::string_view prefix) const {
  absl::MutexLock lock(&read_mutex_);
  const std::optional<std::string> end = PrefixEnd(prefix);
  sqlite3_stmt* statement = end.has_value() ? reader_.scan.get() : reader_.scan_all.get();
  BindBlob(statement, 1, prefix);
  if (end.has_value()) BindBlob(statement, 2, *end);
  std::vector<Record> found;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    found.push_back({ColumnBlob(statement, 0), ColumnBlob(statement, 1)});
  }
  const absl::Status status =
      code == SQLITE_DONE ? absl::OkStatus() : ToStatus(reader_, code, "scan");
  sqlite3_reset(statement);
  if (!status.ok()) return status;
  return found;
}

}  // namespace muster::store
