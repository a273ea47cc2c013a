// The recipe for released images, for amd64 and arm64:
//   VERSION=v0.1.0 PREFIX=registry.example.com/metrics-backend docker buildx bake --push
// For /version to tell the commit, export these before:
//   GIT_COMMIT=$(git rev-parse HEAD) GIT_TREE_STATE=clean
//   BUILD_DATE=$(TZ=UTC0 git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
variable "VERSION" { default = "dev" }
variable "PREFIX" { default = "metrics-backend" }
variable "GIT_COMMIT" { default = "" }
variable "GIT_TREE_STATE" { default = "" }
variable "BUILD_DATE" { default = "" }

group "default" { targets = ["operator", "serving"] }

target "image" {
  matrix    = { name = ["operator", "serving"] }
  name      = name
  context   = "."
  target    = name
  platforms = ["linux/amd64", "linux/arm64"]
  args = {
    VERSION        = VERSION
    GIT_COMMIT     = GIT_COMMIT
    GIT_TREE_STATE = GIT_TREE_STATE
    BUILD_DATE     = BUILD_DATE
  }
  tags      = ["${PREFIX}/${name}:${VERSION}"]
}
