"""Pool of desktop sessions."""

from pathlib import Path
from typing import TYPE_CHECKING

from quartet import config
from quartet.env.deadlines import Deadlines
from quartet.env.desktop.sandbox import require_sandbox
from quartet.env.desktop.session import DesktopSession, SessionSettings
from quartet.env.session_pool import SessionPool

if TYPE_CHECKING:
    from quartet.env.environment.desktop import DesktopEnvironment


def desktop_pool(env: config.Env, settings: "DesktopEnvironment.Settings", files: dict[str, Path]) -> SessionPool:
    """Return a pool of `env.sessions` desktops. Raise `SetupError` if the programs cannot be confined here."""
    confined = settings.sandbox == "bubblewrap"
    if confined:
        require_sandbox()
    session_settings = SessionSettings(settings.width, settings.height, confined, env.screenshots, Deadlines.of(env))
    return SessionPool(lambda: DesktopSession(files, session_settings), env.sessions)
